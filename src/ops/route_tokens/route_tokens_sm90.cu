// Up to eight tokens are multiplied by a router's weight, of which each block has 16 rows and a
// part of the columns: so many blocks that memory gives the weight at the speed of a large one, and
// so small ones that they find room beside what the kernels before still run. The weight is read
// before the kernel before this one has ended. A token's block then makes its choice. It takes sums
// from global memory as the others store them: a sum is its own flag, since it is stored as
// something else than the zero that lies there.
//
// A warp's lanes read their columns in the order that suits them: a product does not care which
// column is which, as long as both sides agree.
#include <algorithm>

#include "ops/device/programmatic_launch.cuh"
#include "ops/device/words_of_blocks.cuh"
#include "ops/linear/linear_host_sm90.h"
#include "ops/linear/stream/math.cuh"
#include "ops/moe_route/token_router.cuh"
#include "ops/route_tokens/route_tokens_kernels.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kWarps = 8, kThreads = kWarps * kWarpSize;
constexpr int kTileRows = 16;           // of the weight
constexpr int kChunk = kRouterColumns;  // columns that a warp takes at a time
constexpr int kChunks = 4;              // whose weights a warp has on their way together
constexpr int kMaxLogits = kMaxRoutedExperts + kMaxRoutedTopK;

// How the weight is cut.
struct Parts {
  int num_rows;                 // in whole tiles
  int count;                    // of each tile's columns
  int num_chunks, warp_chunks;  // of a part, of a warp
};

struct RouteTokensLaunch {
  RouteTokensArgs call;
  Parts parts;
};

struct Shared {
  float parts[kWarps][kMaxRouterTokens][kTileRows];
  float sums[kRouterSums];  // of the block's token, [parts, rows]
  float logits[kMaxLogits];
  RouterChoices chosen;
};

__device__ uint4 load_vector(const void* matrix, int64_t element) {
  return gpu_load_from_l2(
      reinterpret_cast<const uint4*>(static_cast<const BFloat16*>(matrix) + element));
}

// A warp's part of 16 logits of all tokens.
class PartialLogits {
 public:
  __device__ PartialLogits(const RouteTokensArgs& args, const Parts& parts, int tile, int part)
      : args_(args) {
    const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
    group_ = lane / 4;
    column_ = lane % 4 * (kChunk / 4);
    chunk_ = part * parts.num_chunks + warp * parts.warp_chunks;
    end_ = min(min(chunk_ + parts.warp_chunks, (part + 1) * parts.num_chunks),
               args.hidden_size / kChunk);
    for (int i = 0; i < 2; ++i) {
      // What rows behind the last one give is not used.
      const int row = min(tile * kTileRows + i * 8 + group_, args.num_logits - 1);
      rows_[i] = int64_t{row} * args.hidden_size + column_;
    }
    load_weight();
  }

  // After the kernel before has ended.
  __device__ void multiply(float (*sums)[kTileRows]) {
    float c[4] = {};
    const bool has_token = group_ < args_.route.num_tokens;
    const int64_t x_row = group_ * args_.x_stride + column_;
#pragma unroll 1
    for (;;) {
      uint4 x[kChunks];
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        const int chunk = chunk_ + i;
        x[i] = has_token && chunk < end_ ? load_vector(args_.x, x_row + chunk * kChunk) : uint4{};
      }
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        const uint4 a = weight_[i][0], b = weight_[i][1];
        multiply_tile<BFloat16>(c, {a.x, b.x, a.y, b.y}, {x[i].x, x[i].y});
        multiply_tile<BFloat16>(c, {a.z, b.z, a.w, b.w}, {x[i].z, x[i].w});
      }
      chunk_ += kChunks;
      if (chunk_ >= end_) break;
      load_weight();
    }
    const int token = threadIdx.x % 4 * 2;
    sums[token][group_] = c[0];
    sums[token + 1][group_] = c[1];
    sums[token][group_ + 8] = c[2];
    sums[token + 1][group_ + 8] = c[3];
  }

 private:
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
  int group_, column_;  // a row of eight, or a token; the lane's first column of a chunk
  int chunk_, end_;
  int64_t rows_[2];  // elements before them
  uint4 weight_[kChunks][2];
};

// The block's sums to their tokens' blocks.
__device__ void store_sums(const RouteTokensLaunch& args,
                           const Shared& shared,
                           int tile,
                           int part) {
  constexpr uint32_t kMinusZero = 0x80000000u;
  __syncthreads();
  const int token = threadIdx.x / kTileRows, row = threadIdx.x % kTileRows;
  if (token >= args.call.route.num_tokens) return;
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += shared.parts[warp][token][row];
  const uint32_t bits = __float_as_uint(sum);
  const int place = part * args.parts.num_rows + tile * kTileRows + row;
  store_for_others(args.call.sums + token * kRouterSums + place, bits == 0 ? kMinusZero : bits);
}

// What the blocks store for a token, where zeros are left for the next launch.
__device__ void take_sums(const RouteTokensLaunch& args, Shared& shared, int token) {
  constexpr int kVector = 4, kAtOnce = 3;
  static_assert(kRouterSums <= kAtOnce * kVector * kThreads);
  uint4* const places = reinterpret_cast<uint4*>(args.call.sums + token * kRouterSums);
  uint4* const sums = reinterpret_cast<uint4*>(shared.sums);
  const int count = args.parts.count * args.parts.num_rows / kVector;
  uint4 values[kAtOnce];
  bool are_there;
  do {
    are_there = true;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int place = threadIdx.x + i * kThreads;
      values[i] = place < count ? load_of_others(places + place) : uint4{1, 1, 1, 1};
    }
#pragma unroll
    for (const uint4& v : values) {
      are_there = are_there && v.x != 0 && v.y != 0 && v.z != 0 && v.w != 0;
    }
  } while (!are_there);
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const int place = threadIdx.x + i * kThreads;
    if (place >= count) continue;
    sums[place] = values[i];
    places[place] = uint4{};
  }
}

__device__ void add_parts(const RouteTokensLaunch& args, Shared& shared, int token) {
  const RouteTokensArgs& call = args.call;
  float* const products = call.products + token * call.products_stride;
  __syncthreads();
#pragma unroll 1
  for (int row = threadIdx.x; row < call.num_logits; row += kThreads) {
    float sum = call.bias != nullptr ? call.bias[row] : 0.0f;
#pragma unroll 4
    for (int part = 0; part < args.parts.count; ++part) {
      sum += shared.sums[part * args.parts.num_rows + row];
    }
    shared.logits[row] = sum;
    products[row] = sum;
  }
}

template <int kPerLane>
__device__ void choose(const RouteTokensLaunch& args, Shared& shared, int token) {
  take_sums(args, shared, token);
  add_parts(args, shared, token);
  __syncthreads();
  if (threadIdx.x >= kWarpSize) return;
  MoeRouteArgs route = args.call.route;
  route.logits = shared.logits;
  route.row_stride = 0;
  TokenRouter<kPerLane>(route, token).route(shared.chosen);
}

template <int kPerLane>
__global__ void __launch_bounds__(kThreads, 2)
    route_tokens_kernel(const __grid_constant__ RouteTokensLaunch args) {
  __shared__ __align__(16) Shared shared;
  const int block = static_cast<int>(blockIdx.x), tile = block / args.parts.count;
  const int part = block - tile * args.parts.count;
  PartialLogits partial(args.call, args.parts, tile, part);
  allow_next_grid();
  wait_for_previous_grid();
  if (tile * kTileRows < args.parts.num_rows) {
    partial.multiply(shared.parts[threadIdx.x / kWarpSize]);
    store_sums(args, shared, tile, part);
  }
  if (block < args.call.route.num_tokens) choose<kPerLane>(args, shared, block);
}

// As many blocks as `sums` has room for, of no less than a chunk for each warp.
Parts cut(const RouteTokensArgs& call) {
  const int num_chunks = call.hidden_size / kChunk;
  const int num_tiles = divide_up(call.num_logits, kTileRows);
  const int most = std::min(kRouterSums / kTileRows / num_tiles, divide_up(num_chunks, kWarps));
  Parts parts{};
  parts.num_rows = num_tiles * kTileRows;
  parts.num_chunks = divide_up(num_chunks, most);
  parts.count = divide_up(num_chunks, parts.num_chunks);
  parts.warp_chunks = divide_up(parts.num_chunks, kWarps);
  return parts;
}

template <int kPerLane>
gpuError_t launch_for(const RouteTokensArgs& call, gpuStream_t stream) {
  const RouteTokensLaunch args = {call, cut(call)};
  const int num_blocks = std::max(args.parts.num_rows / kTileRows * args.parts.count,
                                  static_cast<int>(call.route.num_tokens));
  return launch(
      route_tokens_kernel<kPerLane>, dim3(num_blocks), dim3(kThreads), 0, stream, true, args);
}

}  // namespace

gpuError_t launch_route_tokens(const RouteTokensArgs& call, gpuStream_t stream) {
  if (call.route.num_experts <= 4 * kWarpSize) return launch_for<4>(call, stream);
  if (call.route.num_experts <= 16 * kWarpSize) return launch_for<16>(call, stream);
  return launch_for<32>(call, stream);
}

}  // namespace atom::ops
