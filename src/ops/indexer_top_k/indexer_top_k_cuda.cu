#include "ops/device/dispatch.cuh"
#include "ops/device/paged_row.cuh"
#include "ops/device/reductions.cuh"
#include "ops/indexer_top_k/indexer_top_k_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

constexpr int kKeys = device::kWarpSize;  // of a block of the scores
constexpr int kWarps = 4;                 // heads at a time
constexpr int kChunk = 64;                // dimensions in shared memory at a time

__device__ float weight_of(const IndexerTopKArgs& args, int64_t token, int64_t head) {
  const int64_t index = token * args.weights_stride + head;
  switch (args.weight_element) {
    case Element::kFloat16:
      return device::to_float(static_cast<const device::Half*>(args.weights)[index]);
    case Element::kBFloat16:
      return device::to_float(static_cast<const device::BFloat16*>(args.weights)[index]);
    default:
      return static_cast<const float*>(args.weights)[index];
  }
}

// grid: blocks of keys, tokens. A thread has one key and every fourth head.
template <typename T>
__global__ void indexer_scores_kernel(IndexerTopKArgs args,
                                      int64_t first_token,
                                      float* scores,
                                      int64_t score_stride) {
  __shared__ float keys[kKeys][kChunk + 1];
  __shared__ float q[kWarps][kChunk];
  __shared__ float sums[kWarps][kKeys];
  const int warp = threadIdx.x / kKeys, lane = threadIdx.x % kKeys;
  const int64_t token = first_token + blockIdx.y;
  const PagedRow row = device::find_row(args.batch, token);
  if (row.position < args.top_k) return;  // all are selected
  for (int64_t first = int64_t{blockIdx.x} * kKeys; first <= row.position;
       first += int64_t{gridDim.x} * kKeys) {
    float sum = 0;
    for (int64_t head_group = 0; head_group < args.num_heads; head_group += kWarps) {
      const int64_t head = head_group + warp;
      float product = 0;
      for (int64_t begin = 0; begin < args.head_dim; begin += kChunk) {
        const int64_t size = min(int64_t{kChunk}, args.head_dim - begin);
        __syncthreads();
        for (int64_t i = warp; i < kKeys; i += kWarps) {
          const int64_t slot = device::slot_of(args.batch, row, min(first + i, row.position));
          const T* key = static_cast<const T*>(args.key_cache) + slot * args.head_dim + begin;
          for (int64_t d = lane; d < size; d += kKeys) keys[i][d] = device::to_float(key[d]);
        }
        const T* query =
            static_cast<const T*>(args.q) + token * args.q_stride + head * args.head_dim + begin;
        for (int64_t d = lane; d < size; d += kKeys) {
          q[warp][d] = head < args.num_heads ? device::to_float(query[d]) : 0.0f;
        }
        __syncthreads();
        for (int64_t d = 0; d < size; ++d) product = fmaf(q[warp][d], keys[lane][d], product);
      }
      if (head >= args.num_heads) continue;
      if (args.activation == IndexerActivation::kRelu && product < 0) product = 0;
      sum = fmaf(weight_of(args, token, head), product, sum);
    }
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && first + lane <= row.position) {
      float total = sums[0][lane];
      for (int i = 1; i < kWarps; ++i) total += sums[i][lane];
      scores[blockIdx.y * score_stride + first + lane] = args.scale * total;
    }
  }
}

constexpr int kSelectThreads = 256;

// Ascends as the score does; -0 is 0, and NaN is less than all else.
__device__ uint32_t rank_of(float score) {
  if (score != score) return 0;
  const uint32_t bits = __float_as_uint(score + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// The rank of the last score selected, and how many of that rank are.
struct Threshold {
  uint32_t rank;
  int64_t num_equal;
};

// A byte at a time from the highest: how many of the candidates, whose upper bytes are the
// threshold's, have which next byte.
__device__ Threshold find_threshold(const float* scores, int64_t count, int64_t top_k) {
  __shared__ unsigned counts[256];
  __shared__ Threshold found;
  if (threadIdx.x == 0) found = {0, top_k};
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < 256; i += kSelectThreads) counts[i] = 0;
    __syncthreads();
    const uint32_t threshold = found.rank;
    for (int64_t i = threadIdx.x; i < count; i += kSelectThreads) {
      const uint32_t rank = rank_of(scores[i]);
      if (shift == 24 || rank >> (shift + 8) == threshold >> (shift + 8)) {
        atomicAdd(&counts[(rank >> shift) & 0xff], 1u);
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int byte = 255;
      while (found.num_equal > counts[byte]) found.num_equal -= counts[byte--];
      found.rank |= static_cast<uint32_t>(byte) << shift;
    }
    __syncthreads();
  }
  return found;
}

// The sum over the threads before this one; `total` is that over all. Ends with a barrier.
__device__ int sum_before(int value, int* warp_sums, int& total) {
  const int warp = threadIdx.x / device::kWarpSize, lane = threadIdx.x % device::kWarpSize;
  int sum = value;
  for (int distance = 1; distance < device::kWarpSize; distance *= 2) {
    const int other = gpu_shuffle(sum, lane >= distance ? lane - distance : lane);
    if (lane >= distance) sum += other;
  }
  if (lane == device::kWarpSize - 1) warp_sums[warp] = sum;
  __syncthreads();
  int before = 0;
  total = 0;
  for (int i = 0; i < kSelectThreads / device::kWarpSize; ++i) {
    if (i < warp) before += warp_sums[i];
    total += warp_sums[i];
  }
  __syncthreads();
  return before + sum - value;
}

// A block per token.
__global__ void select_top_k_kernel(IndexerTopKArgs args,
                                    int64_t first_token,
                                    const float* scores,
                                    int64_t score_stride) {
  __shared__ int warp_sums[kSelectThreads / device::kWarpSize];
  const int64_t token = first_token + blockIdx.x;
  const PagedRow row = device::find_row(args.batch, token);
  const int64_t count = row.position + 1;
  int32_t* indices = args.indices + token * args.top_k;
  if (count <= args.top_k) {
    for (int64_t i = threadIdx.x; i < args.top_k; i += kSelectThreads) {
      indices[i] = static_cast<int32_t>(i < count ? i : -1);
    }
    return;
  }
  const float* row_scores = scores + blockIdx.x * score_stride;
  const Threshold threshold = find_threshold(row_scores, count, args.top_k);
  int64_t num_equal = 0, num_selected = 0;  // before this round's scores
  for (int64_t begin = 0; begin < count; begin += kSelectThreads) {
    const int64_t i = begin + threadIdx.x;
    const uint32_t rank = i < count ? rank_of(row_scores[i]) : 0;
    const bool is_equal = i < count && rank == threshold.rank;
    int round_equal, round_selected;
    const int equal_before = sum_before(is_equal, warp_sums, round_equal);
    const bool is_selected =
        i < count &&
        (rank > threshold.rank || (is_equal && num_equal + equal_before < threshold.num_equal));
    const int selected_before = sum_before(is_selected, warp_sums, round_selected);
    if (is_selected) indices[num_selected + selected_before] = static_cast<int32_t>(i);
    num_equal += round_equal;
    num_selected += round_selected;
  }
}

}  // namespace

void indexer_top_k_cuda(const IndexerTopKArgs& args,
                        int64_t begin,
                        int64_t end,
                        float* scores,
                        int64_t score_stride,
                        void* queue) {
  const auto stream = static_cast<gpuStream_t>(queue);
  const unsigned num_tokens = static_cast<unsigned>(end - begin);
  constexpr int64_t kMostBlocks = 512;
  const int64_t blocks = (score_stride + kKeys - 1) / kKeys;
  const dim3 grid(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks), num_tokens);
  device::dispatch_element(args.element, [&]<typename T>(ElementTag<T>) {
    indexer_scores_kernel<T>
        <<<grid, kKeys * kWarps, 0, stream>>>(args, begin, scores, score_stride);
  });
  select_top_k_kernel<<<num_tokens, kSelectThreads, 0, stream>>>(args, begin, scores, score_stride);
  check_gpu_launch("indexer_top_k");
}

}  // namespace atom::ops
