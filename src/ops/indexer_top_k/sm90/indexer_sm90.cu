#include "ops/indexer_top_k/sm90/indexer_sm90.h"

#include "ops/device/programmatic_launch.cuh"
#include "ops/indexer_top_k/sm90/scores.cuh"
#include "ops/indexer_top_k/sm90/select.cuh"
#include "ops/indexer_top_k/sm90/stream_scores.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using namespace indexer_device;

constexpr int kMaxSharedBytes = 227 * 1024;
constexpr int kMostKeysOfBlock =
    (kMaxSharedBytes - static_cast<int>(sizeof(SelectMemory))) / static_cast<int>(sizeof(uint32_t));

// 0 without a device.
int device_attribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) {
    return 0;
  }
  return value;
}

template <typename T>
void launch_scores(const ScoreArgs& args, dim3 grid, gpuStream_t stream) {
  if (args.params.activation == IndexerActivation::kRelu) {
    indexer_scores_kernel<T, true><<<grid, kScoreThreads, 0, stream>>>(args);
  } else {
    indexer_scores_kernel<T, false><<<grid, kScoreThreads, 0, stream>>>(args);
  }
}

// Whether sequences have so many tokens that keys are to be read once for several of them.
bool has_chunks(const ScoreArgs& args) {
  return args.num_tokens >= 8 * args.params.batch.num_sequences && args.num_tokens >= 64;
}

// As many blocks as run at once, and in steps of many tokens some of each sequence's together.
void launch_all_scores(const ScoreArgs& all, gpuStream_t stream) {
  constexpr int kBlocksAtOnce = 3;
  ScoreArgs args = all;
  args.tokens_per_block = has_chunks(all) ? kMaxTokens : 1;
  const int groups = (args.num_tokens + args.tokens_per_block - 1) / args.tokens_per_block;
  const int64_t chunks = (args.score_stride + kBlockKeys - 1) / kBlockKeys;
  const int64_t wanted =
      (int64_t{kBlocksAtOnce} * device_attribute(cudaDevAttrMultiProcessorCount) + groups - 1) /
      groups;
  const int64_t fewest = args.tokens_per_block > 1 ? 16 : 4;
  const int64_t blocks = wanted > fewest ? wanted : fewest;
  const dim3 grid(static_cast<unsigned>(chunks < blocks ? chunks : blocks), groups);
  if (args.params.element == Element::kBFloat16) {
    launch_scores<gpu_bfloat16>(args, grid, stream);
  } else {
    launch_scores<__half>(args, grid, stream);
  }
}

// Blocks of a cluster: enough for the row, and for few rows more, so that they are faster.
int cluster_size(int64_t num_rows, int64_t most_keys) {
  int size = 1;
  while (size < kMaxCluster &&
         (most_keys > int64_t{size} * kMostKeysOfBlock || num_rows * size * 2 <= 132)) {
    size *= 2;
  }
  return size;
}

}  // namespace

bool supports_indexer_top_k_sm90(const IndexerTopKArgs& args, int64_t max_keys) {
  const bool element = args.element == Element::kBFloat16 || args.element == Element::kFloat16;
  return element && args.head_dim == kKeySize && args.num_heads <= kMaxHeads &&
         args.q_stride % 8 == 0 && reinterpret_cast<uintptr_t>(args.q) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(args.key_cache) % 16 == 0 &&
         max_keys <= int64_t{kMaxCluster} * kMostKeysOfBlock &&
         device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

void indexer_select_sm90(const IndexerTopKArgs& args,
                         int64_t begin,
                         int64_t end,
                         const float* scores,
                         int64_t score_stride,
                         void* queue) {
  const int blocks = cluster_size(end - begin, score_stride);
  const int64_t most = (score_stride + blocks - 1) / blocks;
  const SelectArgs select = {.params = args,
                             .first_token = static_cast<int>(begin),
                             .most_keys = static_cast<int>(most),
                             .scores = scores,
                             .score_stride = score_stride};
  const size_t size = sizeof(SelectMemory) + most * sizeof(uint32_t);
  (void)cudaFuncSetAttribute(
      indexer_select_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMaxSharedBytes);
  (void)device::launch_clusters(indexer_select_kernel,
                                static_cast<int>(end - begin) * blocks,
                                blocks,
                                kSelectThreads,
                                size,
                                static_cast<gpuStream_t>(queue),
                                true,
                                select,
                                blocks);
  check_gpu_launch("indexer_top_k");
}

namespace {

ScoreArgs score_args(
    const IndexerTopKArgs& args, int64_t begin, int64_t end, float* scores, int64_t score_stride) {
  return {.params = args,
          .first_token = static_cast<int>(begin),
          .num_tokens = static_cast<int>(end - begin),
          .tokens_per_block = 1,
          .scores = scores,
          .score_stride = score_stride};
}

}  // namespace

void indexer_top_k_sm90(const IndexerTopKArgs& args,
                        int64_t begin,
                        int64_t end,
                        float* scores,
                        int64_t score_stride,
                        void* queue) {
  launch_all_scores(score_args(args, begin, end, scores, score_stride),
                    static_cast<gpuStream_t>(queue));
  check_gpu_launch("indexer_top_k");
  indexer_select_sm90(args, begin, end, scores, score_stride, queue);
}

bool supports_indexer_top_k_stream_sm90(const IndexerTopKArgs& args, int64_t max_keys) {
  return supports_indexer_top_k_sm90(args, max_keys) && supports_indexer_stream_scores(args);
}

void indexer_top_k_stream_sm90(const IndexerTopKArgs& args,
                               int64_t begin,
                               int64_t end,
                               float* scores,
                               int64_t score_stride,
                               void* queue) {
  if (has_chunks(score_args(args, begin, end, scores, score_stride)) ||
      !launch_indexer_stream_scores(args, begin, end, scores, score_stride, queue)) {
    return indexer_top_k_sm90(args, begin, end, scores, score_stride, queue);
  }
  indexer_select_sm90(args, begin, end, scores, score_stride, queue);
}

}  // namespace atom::ops
