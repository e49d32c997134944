// A cluster of blocks multiplies up to eight tokens by a router's weight, and then a block for each
// token makes its choice. A warp has 16 rows of the weight and a part of the columns, which its
// lanes read in the order that suits them: a product does not care which column is which, as long
// as both sides agree. The weight is read before the kernel before this one has ended.
#include <algorithm>

#include "ops/device/matrix_units.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/linear/stream/math.cuh"
#include "ops/moe_route/token_router.cuh"
#include "ops/route_tokens/route_tokens_kernels.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kWarps = 16, kThreads = kWarps * kWarpSize;
constexpr int kTileRows = 16;                  // of the weight
constexpr int kChunk = kClusterRouterColumns;  // columns that a warp takes at a time
constexpr int kMostParts = 16;                 // of the columns
constexpr int kPortableCluster = 8;            // blocks that any card takes
constexpr int kMaxLogits = kMaxRoutedExperts + kMaxRoutedTopK;

__device__ uint4 load_vector(const void* matrix, int64_t element) {
  return gpu_load_from_l2(
      reinterpret_cast<const uint4*>(static_cast<const BFloat16*>(matrix) + element));
}

// Blocks, and chunks whose weights, and then whose x, a warp has on their way together.
struct Few {
  static constexpr int kBlocks = kMaxClusterTokens, kChunks = 8, kChunksOfX = 8;
};
// Where parts are longer than that: so many blocks that weights come in no more than half as many
// turns, each of which waits for memory.
struct Many {
  static constexpr int kBlocks = 2 * kMaxClusterTokens, kChunks = 10, kChunksOfX = 5;
};

// Which warps have which part of which tile. Tiles' parts go round the blocks.
template <typename Shape>
struct Parts {
  static constexpr int kBlocks = Shape::kBlocks;
  int per_tile, chunks;  // of a part

  __host__ __device__ Parts(int num_logits, int hidden_size) {
    const int num_tiles = (num_logits + kTileRows - 1) / kTileRows;
    const int num_chunks = hidden_size / kChunk;
    const int most = kBlocks * kWarps / num_tiles;
    per_tile = most < kMostParts ? most : kMostParts;
    if (per_tile > num_chunks) per_tile = num_chunks;
    chunks = (num_chunks + per_tile - 1) / per_tile;
  }
  static __device__ int block_of(int part) { return part % kBlocks; }
  static __device__ int warp_of(int part) { return part / kBlocks; }
};

// A warp's part of 16 logits of all tokens.
template <typename Shape>
class PartialLogits {
 public:
  __device__ PartialLogits(const RouteTokensArgs& args, int part)
      : args_(args), parts_(args.num_logits, args.hidden_size) {
    const int lane = threadIdx.x % kWarpSize, tile = part / parts_.per_tile;
    group_ = lane / 4;
    column_ = lane % 4 * (kChunk / 4);
    exists_ = tile * kTileRows < args.num_logits;
    chunk_ = part % parts_.per_tile * parts_.chunks;
    end_ = exists_ ? min(chunk_ + parts_.chunks, args.hidden_size / kChunk) : chunk_;
    for (int i = 0; i < 2; ++i) {
      // What rows behind the last one give is not used.
      const int row = min(tile * kTileRows + i * 8 + group_, args.num_logits - 1);
      rows_[i] = int64_t{row} * args.hidden_size + column_;
    }
  }

  __device__ void begin() { load_weight(); }

  // After the kernel before has ended.
  __device__ void finish(float (*sums)[kTileRows]) {
    float c[4] = {};
    const bool has_token = group_ < args_.route.num_tokens;
    const int64_t x_row = group_ * args_.x_stride + column_;
    while (chunk_ < end_) {
#pragma unroll
      for (int first = 0; first < kChunks; first += kChunksOfX) {
        uint4 x[kChunksOfX];
#pragma unroll
        for (int i = 0; i < kChunksOfX; ++i) {
          const int chunk = chunk_ + first + i;
          x[i] = has_token && chunk < end_ ? load_vector(args_.x, x_row + chunk * kChunk) : uint4{};
        }
#pragma unroll
        for (int i = 0; i < kChunksOfX; ++i) {
          const uint4 a = weight_[first + i][0], b = weight_[first + i][1];
          multiply_tile<BFloat16>(c, {a.x, b.x, a.y, b.y}, {x[i].x, x[i].y});
          multiply_tile<BFloat16>(c, {a.z, b.z, a.w, b.w}, {x[i].z, x[i].w});
        }
      }
      chunk_ += kChunks;
      if (chunk_ < end_) load_weight();
    }
    const int token = threadIdx.x % 4 * 2;
    sums[token][group_] = c[0];
    sums[token + 1][group_] = c[1];
    sums[token][group_ + 8] = c[2];
    sums[token + 1][group_ + 8] = c[3];
  }

 private:
  static constexpr int kChunks = Shape::kChunks, kChunksOfX = Shape::kChunksOfX;
  static_assert(kChunks % kChunksOfX == 0);

  __device__ void load_weight() {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        weight_[i][half] = chunk_ + i < end_
                               ? load_vector(args_.weight, rows_[half] + (chunk_ + i) * kChunk)
                               : uint4{};
      }
    }
  }

  const RouteTokensArgs& args_;
  const Parts<Shape> parts_;
  int group_, column_;  // a row of eight, or a token; the lane's first column of a chunk
  int chunk_, end_;
  bool exists_;
  int64_t rows_[2];  // elements before them
  uint4 weight_[kChunks][2];
};

__device__ float load_from_block(int block, const float* place) {
  const uint32_t own = static_cast<uint32_t>(__cvta_generic_to_shared(place));
  return load_float_in_cluster(address_in(block, own));
}

// Whole warps call it. Those that have waited see what was written before.
__device__ void arrive_at_end_of_step() {
  __syncwarp();
  release_to_cluster();
}

__device__ void wait_for_end_of_step() {
  __syncwarp();
  wait_for_cluster();
}

// A token's logits from the parts of all blocks, by all threads, of which kLanes share a logit.
template <typename Shape, int kLanes>
__device__ void add_parts_by(const RouteTokensArgs& args,
                             const float (*sums)[kMaxClusterTokens][kTileRows],
                             int token,
                             float* logits) {
  using Parts = Parts<Shape>;
  constexpr int kAtOnce = kMostParts / kLanes;
  const Parts parts(args.num_logits, args.hidden_size);
  const int lane = threadIdx.x % kLanes;
  for (int first = 0; first < args.num_logits; first += kThreads / kLanes) {
    const int i = first + static_cast<int>(threadIdx.x) / kLanes;
    const int row = min(i, args.num_logits - 1);
    float values[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int place =
          row / kTileRows * parts.per_tile + min(lane + k * kLanes, parts.per_tile - 1);
      values[k] = load_from_block(Parts::block_of(place),
                                  &sums[Parts::warp_of(place)][token][row % kTileRows]);
    }
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (lane + k * kLanes < parts.per_tile) sum += values[k];
    }
#pragma unroll
    for (int mask = 1; mask < kLanes; mask *= 2) sum += exchange(sum, mask);
    if (lane != 0 || i >= args.num_logits) continue;
    if (args.bias != nullptr) sum += args.bias[i];
    logits[i] = sum;
    args.products[token * args.products_stride + i] = sum;
  }
}

// Each pass waits for other blocks' memory: in as few as the logits allow.
template <typename Shape>
__device__ void add_parts(const RouteTokensArgs& args,
                          const float (*sums)[kMaxClusterTokens][kTileRows],
                          int token,
                          float* logits) {
  if (args.num_logits <= kThreads / 4) {
    add_parts_by<Shape, 4>(args, sums, token, logits);
  } else if (args.num_logits <= kThreads / 2) {
    add_parts_by<Shape, 2>(args, sums, token, logits);
  } else {
    add_parts_by<Shape, 1>(args, sums, token, logits);
  }
}

template <int kPerLane, typename Shape>
__global__ void __launch_bounds__(kThreads, 1)
    route_tokens_kernel(const __grid_constant__ RouteTokensArgs args) {
  __shared__ float sums[kWarps][kMaxClusterTokens][kTileRows];
  __shared__ float logits[kMaxLogits];
  __shared__ RouterChoices chosen;
  const int rank = cluster_rank(), warp = threadIdx.x / kWarpSize;
  PartialLogits<Shape> partial(args, warp * Shape::kBlocks + rank);
  partial.begin();
  allow_next_grid();
  wait_for_previous_grid();
  partial.finish(sums[warp]);
  arrive_at_end_of_step();
  wait_for_end_of_step();
  const bool has_token = rank < args.route.num_tokens;
  if (has_token) add_parts<Shape>(args, sums, rank, logits);
  // No block ends while others read its sums.
  arrive_at_end_of_step();
  __syncthreads();
  if (has_token && warp == 0) {
    MoeRouteArgs route = args.route;
    route.logits = logits;
    route.row_stride = 0;
    TokenRouter<kPerLane>(route, rank).route(chosen);
  }
  wait_for_end_of_step();
}

template <int kPerLane, typename Shape>
gpuError_t launch_cluster(const RouteTokensArgs& args, gpuStream_t stream) {
  auto* kernel = &route_tokens_kernel<kPerLane, Shape>;
  if (Shape::kBlocks > kPortableCluster) {
    const gpuError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (error != cudaSuccess) return error;
  }
  return launch_clusters(kernel, Shape::kBlocks, Shape::kBlocks, kThreads, 0, stream, true, args);
}

// Whether this card can have a cluster of so many blocks at all.
template <int kPerLane, typename Shape>
bool has_room() {
  auto* kernel = &route_tokens_kernel<kPerLane, Shape>;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {Shape::kBlocks, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(Shape::kBlocks);
  config.blockDim = dim3(kThreads);
  config.attrs = &cluster;
  config.numAttrs = 1;
  int count = 0;
  const bool fits = cudaFuncSetAttribute(
                        kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess &&
                    cudaOccupancyMaxActiveClusters(&count, kernel, &config) == cudaSuccess &&
                    count > 0;
  if (!fits) (void)cudaGetLastError();
  return fits;
}

template <int kPerLane>
gpuError_t launch_for(const RouteTokensArgs& args, gpuStream_t stream) {
  static const bool has_many = has_room<kPerLane, Many>();
  const bool in_turns = Parts<Few>(args.num_logits, args.hidden_size).chunks > Few::kChunks;
  return has_many && in_turns ? launch_cluster<kPerLane, Many>(args, stream)
                              : launch_cluster<kPerLane, Few>(args, stream);
}

}  // namespace

gpuError_t launch_route_tokens(const RouteTokensArgs& args, gpuStream_t stream) {
  if (args.route.num_experts <= 4 * kWarpSize) return launch_for<4>(args, stream);
  if (args.route.num_experts <= 16 * kWarpSize) return launch_for<16>(args, stream);
  return launch_for<32>(args, stream);
}

}  // namespace atom::ops
