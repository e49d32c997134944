// A block has every so many tiles of 64 keys of one token. One warp has the copy engine bring them,
// as far ahead as memory allows; two warpgroups take turns in multiplying them by the query's heads
// and adding these up. A thread has two keys and a quarter of the heads.
#include "ops/indexer_top_k/sm90/stream_scores.h"

#include <algorithm>

#include "ops/attention/device/wgmma.cuh"
#include "ops/device/async_copy.cuh"
#include "ops/device/bulk_copy.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/tensor_map.cuh"
#include "ops/indexer_top_k/sm90/scores.cuh"
#include "ops/linear/skinny/wgmma.cuh"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using namespace device;
using indexer_device::kKeySize;
using indexer_device::kMaxHeads;
using indexer_device::kRowBytes;
using indexer_device::weight_of;

constexpr int kPanelBytes = 128;  // of a row, as a product reads it
constexpr int kPanels = kRowBytes / kPanelBytes;
constexpr int kTileKeys = 64;
constexpr int kTilePanel = kTileKeys * kPanelBytes, kTileSize = kPanels * kTilePanel;
constexpr int kStages = 10;
constexpr int kGroups = 2, kGroupWarps = 4, kGroupThreads = kGroupWarps * 32;
constexpr int kConsumers = kGroups * kGroupThreads, kThreads = kConsumers + 32;
static_assert(kStages % kGroups == 0);

constexpr int kReadyBarrier = 1;  // the query and the stages' barriers are there

struct StreamArgs {
  IndexerTopKArgs params;
  int first_token;
  int box_keys;  // neighbors that are copied together
  float* scores;
  int64_t score_stride;
  CUtensorMap keys;
};

template <int kHeads>
struct Shared {
  static constexpr int kQueryPanel = kHeads * kPanelBytes;
  uint8_t stages[kStages][kTileSize];
  uint8_t query[kPanels * kQueryPanel];
  float weights[kHeads];
  uint64_t full[kStages], empty[kStages];
};

// A block's tiles of its token's keys.
struct Tiles {
  PagedRow row;
  int count;

  __device__ Tiles(const IndexerTopKArgs& params, const PagedRow& found) : row(found), count(0) {
    const int64_t all = row.position / kTileKeys + 1;
    const int64_t first = blockIdx.x, step = gridDim.x;
    if (row.position >= params.top_k && first < all) {
      count = static_cast<int>((all - first + step - 1) / step);
    }
  }
  __device__ int64_t first_key(int i) const {
    return (blockIdx.x + int64_t{i} * gridDim.x) * kTileKeys;
  }
};

// Rows of 128 bytes, swizzled; heads beyond the last are zeros.
template <int kHeads>
__device__ void load_query(const StreamArgs& args, int64_t token, Shared<kHeads>& shared) {
  constexpr int kVectors = kRowBytes / kVectorSize, kPanelVectors = kPanelBytes / kVectorSize;
  const IndexerTopKArgs& params = args.params;
  const char* const source = static_cast<const char*>(params.q) + token * params.q_stride * 2;
  for (int i = threadIdx.x; i < kHeads * kVectors; i += kConsumers) {
    const int head = i / kVectors, vector = i % kVectors, place = vector % kPanelVectors;
    uint8_t* const target = shared.query + vector / kPanelVectors * Shared<kHeads>::kQueryPanel +
                            head * kPanelBytes + ((place ^ (head & 7)) * kVectorSize);
    store_bits(target, head < params.num_heads ? load_bits(source + i * kVectorSize) : uint4{});
  }
  for (int head = threadIdx.x; head < kHeads; head += kConsumers) {
    shared.weights[head] = head < params.num_heads ? weight_of(params, token, head) : 0.0f;
  }
}

// By one warp. A lane finds out where a box is, of as many tiles as the warp has lanes for. Keys of
// earlier steps come while the kernels before still run.
template <int kHeads>
__device__ void copy_tiles(const StreamArgs& args, const Tiles& tiles, Shared<kHeads>& shared) {
  const int lane = threadIdx.x % 32;
  const int boxes = kTileKeys / args.box_keys, tiles_at_once = 32 / boxes;
  const uint64_t policy = read_once_policy();
  // Boxes behind the last key are that key's.
  const int64_t last_box = tiles.row.position / args.box_keys * args.box_keys;
  const int64_t settled = settled_tokens(args.params.batch, tiles.row);
  bool is_early = true;
  StageCursor stage;
  for (int first = 0; first < tiles.count; first += tiles_at_once) {
    int slot = 0;
    if (first + lane / boxes < tiles.count) {
      const int64_t key = tiles.first_key(first + lane / boxes) + lane % boxes * args.box_keys;
      slot = static_cast<int>(slot_of(args.params.batch, tiles.row, min(key, last_box)));
    }
    const int end = min(first + tiles_at_once, tiles.count);
    for (int i = first; i < end; ++i) {
      const int row = __shfl_sync(0xffffffffu, slot, (i - first) * boxes + lane % boxes);
      if (is_early && tiles.first_key(i) + kTileKeys > settled) {
        wait_for_previous_grid();
        is_early = false;
      }
      wait_for(shared_address(&shared.empty[stage.index]), stage.parity ^ 1);
      const uint32_t full = shared_address(&shared.full[stage.index]);
      if (lane == 0) arrive_expecting(full, kTileSize);
      __syncwarp();
      if (lane < boxes) {
        const uint32_t target =
            shared_address(shared.stages[stage.index]) + lane * args.box_keys * kPanelBytes;
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel) {
          copy_box(target + panel * kTilePanel,
                   &args.keys,
                   panel * (kKeySize / kPanels),
                   row,
                   full,
                   policy);
        }
      }
      stage.advance(kStages);
    }
  }
}

// Of a tile's rows lane / 4 of a warp's 16 and the one eight below: heads are the columns.
template <int kHeads, bool kRelu>
__device__ void add_heads(const float (&products)[kHeads / 2],
                          const float (&weights)[kHeads / 4],
                          float (&sums)[2]) {
  sums[0] = sums[1] = 0;
#pragma unroll
  for (int i = 0; i < kHeads / 2; ++i) {
    float product = products[i];
    if constexpr (kRelu) product = product < 0 ? 0.0f : product;  // NaN stays
    float& sum = sums[i / 2 % 2];
    sum = fmaf(weights[i / 4 * 2 + i % 2], product, sum);
  }
#pragma unroll
  for (float& sum : sums) {
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  }
}

// By a warpgroup: its tiles.
template <typename T, int kHeads, bool kRelu>
__device__ void score_tiles(const StreamArgs& args,
                            const Tiles& tiles,
                            float* scores,
                            Shared<kHeads>& shared) {
  constexpr int kSteps = kPanelBytes / 32;
  const int group = threadIdx.x / kGroupThreads, lane = threadIdx.x % 32;
  const int row = threadIdx.x % kGroupThreads / 32 * 16 + lane / 4;
  float weights[kHeads / 4];
#pragma unroll
  for (int i = 0; i < kHeads / 4; ++i) {
    weights[i] = shared.weights[i / 2 * 8 + lane % 4 * 2 + i % 2];
  }
  const uint64_t query = matrix_at(shared_address(shared.query));
  int stage = group;
  uint32_t parity = 0;
  for (int i = group; i < tiles.count; i += kGroups) {
    wait_for(shared_address(&shared.full[stage]), parity);
    const uint64_t keys = matrix_at(shared_address(shared.stages[stage]));
    float products[kHeads / 2];
    begin_products();
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        multiply<T, kHeads>(products,
                            keys + matrix_offset(panel * kTilePanel + step * 32),
                            query + matrix_offset(panel * Shared<kHeads>::kQueryPanel + step * 32),
                            panel + step > 0);
      }
    }
    commit_products();
    wait_for_products<0>();
    pin(products);
    if (lane == 0) arrive(shared_address(&shared.empty[stage]));
    float sums[2];
    add_heads<kHeads, kRelu>(products, weights, sums);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int64_t key = tiles.first_key(i) + row + j * 8;
      if (lane % 4 == 0 && key <= tiles.row.position) scores[key] = args.params.scale * sums[j];
    }
    stage += kGroups;
    if (stage < kStages) continue;
    stage -= kStages;
    parity ^= 1;
  }
}

// grid: blocks that share a token's keys, tokens.
template <typename T, int kHeads, bool kRelu>
__global__ void __launch_bounds__(kThreads, 1)
    stream_scores_kernel(const __grid_constant__ StreamArgs args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  Shared<kHeads>& shared = *reinterpret_cast<Shared<kHeads>*>(memory);
  const int64_t token = int64_t{args.first_token} + blockIdx.y;
  if (threadIdx.x == kConsumers) {
    prefetch_map(&args.keys);
    for (int i = 0; i < kStages; ++i) {
      init_barrier(shared_address(&shared.full[i]), 1);
      init_barrier(shared_address(&shared.empty[i]), kGroupWarps);
    }
    publish_barriers();
  }
  const Tiles tiles(args.params, find_row(args.params.batch, token));
  if (threadIdx.x >= kConsumers) {
    __syncwarp();
    attention_device::named_barrier_arrive<kThreads>(kReadyBarrier);
    return copy_tiles(args, tiles, shared);
  }
  allow_next_grid();
  wait_for_previous_grid();
  load_query(args, token, shared);
  fence_before_copies();
  attention_device::named_barrier_wait<kThreads>(kReadyBarrier);
  score_tiles<T, kHeads, kRelu>(args, tiles, args.scores + blockIdx.y * args.score_stride, shared);
}

template <typename T, int kHeads, bool kRelu>
void launch(const StreamArgs& args, dim3 grid, gpuStream_t stream) {
  auto* const kernel = &stream_scores_kernel<T, kHeads, kRelu>;
  constexpr int kSize = sizeof(Shared<kHeads>);
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSize) ==
      cudaSuccess) {
    (void)device::launch(kernel, grid, dim3(kThreads), kSize, stream, true, args);
  }
  check_gpu_launch("indexer_top_k");
}

template <typename T>
void launch_for(const StreamArgs& args, dim3 grid, gpuStream_t stream) {
  const bool relu = args.params.activation == IndexerActivation::kRelu;
  if (args.params.num_heads <= kMaxHeads / 2) {
    return relu ? launch<T, kMaxHeads / 2, true>(args, grid, stream)
                : launch<T, kMaxHeads / 2, false>(args, grid, stream);
  }
  relu ? launch<T, kMaxHeads, true>(args, grid, stream)
       : launch<T, kMaxHeads, false>(args, grid, stream);
}

int box_keys(const IndexerTopKArgs& args) {
  int keys = kTileKeys;
  while (args.batch.block_size % keys != 0) keys /= 2;
  return keys;
}

bool encode_keys(const IndexerTopKArgs& args, int box, CUtensorMap* map) {
  const bool is_bfloat16 = args.element == Element::kBFloat16;
  const TensorMapShape<2> shape = {
      {kKeySize, static_cast<cuuint64_t>(args.batch.num_blocks * args.batch.block_size)},
      {kRowBytes},
      {kKeySize / kPanels, static_cast<cuuint32_t>(box)}};
  return encode_tensor_map(
      map,
      is_bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      args.key_cache,
      shape,
      CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

int num_multiprocessors() {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
    return 1;
  }
  return count;
}

}  // namespace

bool supports_indexer_stream_scores(const IndexerTopKArgs& args) {
  return args.batch.block_size % 16 == 0 &&
         args.batch.num_blocks * args.batch.block_size < int64_t{1} << 31;
}

bool launch_indexer_stream_scores(const IndexerTopKArgs& args,
                                  int64_t begin,
                                  int64_t end,
                                  float* scores,
                                  int64_t score_stride,
                                  void* queue) {
  constexpr int64_t kFewTokens = 16;  // of more, rows may be of different lengths
  // One or two tokens have so little time that no block should wait for multiprocessors which the
  // kernel before, a selection by clusters, still has.
  constexpr int64_t kOfOthers = 16;
  StreamArgs stream_args{};
  stream_args.params = args;
  stream_args.first_token = static_cast<int>(begin);
  stream_args.box_keys = box_keys(args);
  stream_args.scores = scores;
  stream_args.score_stride = score_stride;
  if (!encode_keys(args, stream_args.box_keys, &stream_args.keys)) return false;
  const int64_t num_tokens = end - begin, tiles = (score_stride + kTileKeys - 1) / kTileKeys;
  const int64_t all = num_multiprocessors();
  const int64_t at_once = num_tokens > kFewTokens ? 2 * all
                          : num_tokens > 2        ? all
                                                  : all - kOfOthers;
  const int64_t blocks = std::clamp<int64_t>(at_once / num_tokens, 1, tiles);
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(num_tokens));
  const auto stream = static_cast<gpuStream_t>(queue);
  if (args.element == Element::kBFloat16) {
    launch_for<gpu_bfloat16>(stream_args, grid, stream);
  } else {
    launch_for<__half>(stream_args, grid, stream);
  }
  return true;
}

}  // namespace atom::ops
