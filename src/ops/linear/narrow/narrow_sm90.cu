// A warp has a tile of outputs and chunks of k, which its lanes read in the order that suits them:
// a product does not care which column is which, as long as both sides agree. The weight is read
// before the kernel before this one has ended. The sums of a block's warps are added in shared
// memory, and what blocks of a cluster have is sent to the one that stores it.
#include "ops/linear/narrow/narrow_cuda.h"

#include <algorithm>

#include "ops/device/async_copy.cuh"
#include "ops/device/cluster.cuh"
#include "ops/device/matrix_units.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/linear/linear_epilogue.cuh"
#include "ops/linear/linear_host_sm90.h"
#include "ops/linear/stream/math.cuh"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kWarps = 8, kThreads = kWarps * kWarpSize;
constexpr int kTileFeatures = 32, kTileRows = 32;  // of outputs
constexpr int kVector = 8;                         // elements that a lane loads at once
constexpr int kChunk = 4 * kVector;                // of k
constexpr int kAhead = 2;                          // chunks of a warp that are on their way
// Of k, the blocks of a cluster. A block that was not launched in a cluster cannot send itself
// anything (an illegal instruction).
constexpr int kMinSplits = 2, kMaxSplits = 8;
// So that the sums that a warp stores at a time lie in different banks.
constexpr int kStride = kTileFeatures + 4;

struct NarrowArgs {
  LinearGpuCall params;
  int num_chunks;
  int num_splits;
};

// Sums of the outputs that a block stores: [num_splits, kTileRows / num_splits, kTileFeatures].
struct Arrived {
  alignas(16) float sums[kTileRows * kTileFeatures];
  uint64_t barrier;  // all have come
};

struct NarrowShared {
  alignas(16) float sums[kWarps][kTileRows][kStride];
  Arrived arrived;
};

// A warp's part of a tile of outputs.
template <typename T>
class Products {
 public:
  __device__ Products(const NarrowArgs& args, int tile, int row_tile, int split)
      : args_(args),
        chunk_(split * kWarps + static_cast<int>(threadIdx.x) / kWarpSize),
        chunk_step_(args.num_splits * kWarps) {
    const LinearGpuCall& p = args.params;
    const int lane = threadIdx.x % kWarpSize;
    group_ = lane / 4;
    column_ = lane % 4 * kVector;
    feature_ = tile * kTileFeatures + group_;
    row_ = row_tile * kTileRows + group_;
    weight_ = static_cast<const T*>(p.weight) + int64_t{feature_} * p.in_features + column_;
    x_ = static_cast<const T*>(p.x) + row_ * p.x_stride + column_;
  }

  __device__ void begin() { load_weight(); }

  // After the kernel before has ended.
  __device__ void finish(float (*sums)[kStride]) {
    while (chunk_ < args_.num_chunks) {
      load_x();
#pragma unroll
      for (int i = 0; i < kAhead; ++i) multiply(weights_[i], rows_[i]);
      chunk_ += kAhead * chunk_step_;
      load_weight();
    }
    const int first = threadIdx.x % 4 * 2;
#pragma unroll
    for (int m = 0; m < kFeatureTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[n * 8 + first + i % 2][m * 16 + i / 2 * 8 + group_] = sums_[m][n][i];
        }
      }
    }
  }

 private:
  static constexpr int kFeatureTiles = kTileFeatures / 16, kRowTiles = kTileRows / 8;

  static __device__ uint4 load(const T* from, bool exists) {
    return exists ? gpu_load_from_l2(reinterpret_cast<const uint4*>(from)) : uint4{};
  }
  __device__ int column(int ahead) const {
    return (chunk_ + ahead * chunk_step_) * kChunk;
  }
  __device__ bool exists(int ahead) const {
    return column(ahead) + column_ < args_.params.in_features;
  }

  __device__ void load_weight() {
    const LinearGpuCall& p = args_.params;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
#pragma unroll
      for (int eight = 0; eight < 2 * kFeatureTiles; ++eight) {
        weights_[i][eight] = load(weight_ + int64_t{eight * 8} * p.in_features + column(i),
                                  exists(i) && feature_ + eight * 8 < p.out_features);
      }
    }
  }
  __device__ void load_x() {
    const LinearGpuCall& p = args_.params;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
        rows_[i][n] =
            load(x_ + n * 8 * p.x_stride + column(i), exists(i) && row_ + n * 8 < p.num_rows);
      }
    }
  }

  __device__ void multiply(const uint4 (&weight)[2 * kFeatureTiles], const uint4 (&x)[kRowTiles]) {
#pragma unroll
    for (int m = 0; m < kFeatureTiles; ++m) {
      const uint4 a = weight[2 * m], b = weight[2 * m + 1];
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
        multiply_tile<T>(sums_[m][n], {a.x, b.x, a.y, b.y}, {x[n].x, x[n].y});
        multiply_tile<T>(sums_[m][n], {a.z, b.z, a.w, b.w}, {x[n].z, x[n].w});
      }
    }
  }

  const NarrowArgs& args_;
  int chunk_;
  const int chunk_step_;
  int group_, column_;  // a row of eight; the lane's first column of a chunk
  int feature_, row_;   // the lane's first ones
  const T *weight_, *x_;
  uint4 weights_[kAhead][2 * kFeatureTiles], rows_[kAhead][kRowTiles];
  float sums_[kFeatureTiles][kRowTiles][4] = {};
};

// Those of the block's warps, to the blocks that store their outputs.
__device__ void send_sums(const NarrowArgs& args, NarrowShared& shared, int split) {
  constexpr int kQuads = kTileFeatures / 4;
  static_assert(kTileRows * kQuads == kThreads);
  const int row = threadIdx.x / kQuads, feature = threadIdx.x % kQuads * 4;
  float4 sum = {};
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    const auto more = *reinterpret_cast<const float4*>(&shared.sums[warp][row][feature]);
    sum.x += more.x;
    sum.y += more.y;
    sum.z += more.z;
    sum.w += more.w;
  }
  const int rows = kTileRows / args.num_splits;  // of a block
  Arrived& arrived = shared.arrived;
  float* const place = arrived.sums + (split * rows + row % rows) * kTileFeatures + feature;
  const uint32_t target = address_in(row / rows, shared_address(place));
  const uint32_t barrier = address_in(row / rows, shared_address(&arrived.barrier));
  send_in_cluster(target, make_float2(sum.x, sum.y), barrier);
  send_in_cluster(target + sizeof(float2), make_float2(sum.z, sum.w), barrier);
}

// Adds up what has arrived, and the bias.
__device__ void store_sums(
    const NarrowArgs& args, const float* sums, int first_row, int feature, float bias) {
  const LinearGpuCall& p = args.params;
  const int num_stored = kTileRows * kTileFeatures / args.num_splits;
  for (int i = threadIdx.x; i < num_stored; i += kThreads) {
    const int row = first_row + i / kTileFeatures;
    if (row >= p.num_rows || feature >= p.out_features) continue;
    float sum = 0;
    for (int split = 0; split < args.num_splits; ++split) sum += sums[split * num_stored + i];
    store_as(p.y_element, p.y, row * p.y_stride + feature, sum + bias);
  }
}

// grid: splits and tiles of features, tiles of rows.
template <typename T>
__global__ void __launch_bounds__(kThreads, 2)
    linear_narrow(const __grid_constant__ NarrowArgs args) {
  __shared__ NarrowShared shared;
  const LinearGpuCall& p = args.params;
  const int split = cluster_rank(), warp = threadIdx.x / kWarpSize;
  const int tile = static_cast<int>(blockIdx.x) / args.num_splits;
  const int row_tile = static_cast<int>(blockIdx.y);
  const int feature = tile * kTileFeatures + static_cast<int>(threadIdx.x) % kTileFeatures;
  const uint32_t barrier = shared_address(&shared.arrived.barrier);
  allow_next_grid();
  if (threadIdx.x == 0) {
    init_barrier(barrier, 1);
    publish_barriers();
    arrive_expecting(barrier, sizeof shared.arrived.sums);
  }
  __syncwarp();
  release_to_cluster();
  Products<T> products(args, tile, row_tile, split);
  products.begin();
  const float bias = p.bias != nullptr && feature < p.out_features
                         ? load_as(p.bias_element, p.bias, feature)
                         : 0.0f;
  wait_for_previous_grid();
  products.finish(shared.sums[warp]);
  wait_for_cluster();
  __syncthreads();
  send_sums(args, shared, split);
  wait_for(barrier, 0);
  const int first_row = row_tile * kTileRows + split * (kTileRows / args.num_splits);
  store_sums(args, shared.arrived.sums, first_row, feature, bias);
}

int num_tiles(const LinearGpuCall& p) {
  return divide_up(p.out_features, kTileFeatures) * divide_up(p.num_rows, kTileRows);
}

// As many splits as keep all of k on its way, or more as long as the card has room for them.
int num_splits(const LinearGpuCall& p, int num_chunks, int num_multiprocessors) {
  int splits = kMinSplits;
  while (splits < kMaxSplits && splits * kWarps < num_chunks) {
    const bool is_on_its_way = splits * kWarps * kAhead >= num_chunks;
    if (is_on_its_way && 2 * splits * num_tiles(p) > num_multiprocessors) break;
    splits *= 2;
  }
  return splits;
}

template <typename T>
gpuError_t launch_for(const NarrowArgs& args, gpuStream_t stream) {
  const int tiles = divide_up(args.params.out_features, kTileFeatures);
  const int row_tiles = divide_up(args.params.num_rows, kTileRows);
  return gpu_launch({.grid = dim3(static_cast<unsigned>(tiles * args.num_splits),
                                  static_cast<unsigned>(row_tiles)),
                     .block = dim3(kThreads),
                     .stream = stream,
                     .overlaps_previous = args.params.overlaps_previous,
                     .cluster_size = static_cast<unsigned>(args.num_splits)},
                    &linear_narrow<T>,
                    args);
}

}  // namespace

bool supports_linear_narrow(const LinearGpuCall& p) {
  constexpr int kAlignment = sizeof(uint4), kMaxRowTiles = 65535;
  const bool is_16_bit =
      p.weight_element == Element::kBFloat16 || p.weight_element == Element::kFloat16;
  return is_16_bit && p.x_element == p.weight_element && p.epilogue == LinearEpilogue::kStore &&
         p.x_scale == nullptr && p.weight_scale == nullptr && !p.has_groups() && p.num_rows >= 1 &&
         p.num_rows <= kMaxRowTiles * kTileRows && p.out_features >= 1 && p.in_features >= 1 &&
         p.in_features % kVector == 0 && p.x_stride % kVector == 0 &&
         is_multiple(p.x, kAlignment) && is_multiple(p.weight, kAlignment);
}

int64_t linear_narrow_traffic(const LinearGpuCall& p) {
  const int64_t tiles =
      int64_t{divide_up(p.out_features, kTileFeatures)} * divide_up(p.num_rows, kTileRows);
  return tiles * (kTileFeatures + kTileRows) * p.in_features * bytes_of(p.weight_element);
}

gpuError_t launch_linear_narrow(const LinearGpuCall& params, gpuStream_t stream) {
  if (!supports_linear_narrow(params)) return cudaErrorInvalidValue;
  int num_multiprocessors = 0;
  if (const gpuError_t error = count_multiprocessors(&num_multiprocessors); error != cudaSuccess) {
    return error;
  }
  const int num_chunks = divide_up(params.in_features, kChunk);
  const NarrowArgs args = {params, num_chunks, num_splits(params, num_chunks, num_multiprocessors)};
  return params.weight_element == Element::kFloat16 ? launch_for<Half>(args, stream)
                                                    : launch_for<BFloat16>(args, stream);
}

}  // namespace atom::ops
