// Plain GPU kernels: choices sorted by expert, a product of tiles per matrix with the activation
// between them, and the sum of each token's results.
#include <type_traits>

#include "ops/device/dispatch.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/fused_moe_gpu.h"
#include "ops/fused_moe/moe_device.cuh"
#include "ops/fused_moe/moe_groups.cuh"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kTile = 16;  // rows and columns of a block's outputs
constexpr int kSortWarps = 16;
constexpr int kSortChoices = 8;  // of a lane at a time
constexpr int kThreads = 256;

// tile_begins[e] = the tiles of rows before expert e.
__device__ void count_tiles(const int* row_begins,
                            int num_experts,
                            int tile_rows,
                            int32_t* tile_begins) {
  if (threadIdx.x != 0) return;
  int tiles = 0;
  for (int e = 0; e < num_experts; ++e) {
    tile_begins[e] = tiles;
    tiles += (row_begins[e + 1] - row_begins[e] + tile_rows - 1) / tile_rows;
  }
  tile_begins[num_experts] = tiles;
}

__global__ void sort_choices(FusedMoeGpuCall call, FusedMoeGpuScratch scratch, int tile_rows) {
  extern __shared__ uint32_t counts[];
  __shared__ int begins[kMaxGpuExperts + 1];
  allow_next_grid();
  wait_for_previous_grid();
  ChoiceSorter<kSortWarps, kSortChoices> sorter(call, counts, begins);
  sorter.for_rows([&](int row, int choice) { scratch.choices[row] = choice; });
  for (int e = threadIdx.x; e <= call.num_experts; e += blockDim.x) {
    scratch.row_begins[e] = begins[e];
  }
  count_tiles(begins, call.num_experts, tile_rows, scratch.tile_begins);
}

// The expert of a tile, by halving; the tile is below the last begin.
__device__ int expert_of_tile(const int32_t* tile_begins, int num_experts, int tile) {
  int low = 0, high = num_experts;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (tile_begins[middle] <= tile ? low : high) = middle;
  }
  return low;
}

// What a product reads and where it writes.
struct Product {
  ExpertMatrices matrices;
  const void* x;
  float* y;
  int64_t x_stride;
  int num_rows, num_columns;  // of a matrix
  int x_divisor;              // a row's x is that of its choice by this, or if 0 its own
  bool writes_choices;        // y has a row per choice, else in the order of rows
};

// Of matrices in E2M1, and in integers.
struct PackedFloat4 {};
struct Float4Images {};
struct PackedInt4 {};

template <typename W>
__device__ float weight_at(
    const ExpertMatrices& matrices, int expert, int row, int column, int num_columns) {
  if constexpr (std::is_same_v<W, PackedFloat4>) {
    return float4_at(matrices, expert, column, Float4Place::in_rows(row, column, num_columns));
  } else if constexpr (std::is_same_v<W, Float4Images>) {
    return float4_at(matrices, expert, column, Float4Place::in_images(row, column, num_columns));
  } else if constexpr (std::is_same_v<W, PackedInt4>) {
    const auto* data = static_cast<const uint8_t*>(matrices.data) + expert * matrices.expert_stride;
    const int byte = data[(int64_t{row} * num_columns + column) / 2];
    return static_cast<float>((byte >> column % 2 * 4 & 15) - 8);
  } else if constexpr (std::is_same_v<W, int8_t>) {
    const auto* data = static_cast<const int8_t*>(matrices.data) + expert * matrices.expert_stride;
    return static_cast<float>(data[int64_t{row} * num_columns + column]);
  } else {
    const auto* data = reinterpret_cast<const W*>(static_cast<const char*>(matrices.data) +
                                                  expert * matrices.expert_stride);
    return to_float(data[int64_t{row} * num_columns + column]);
  }
}

template <typename X, typename W>
__global__ void multiply_tiles(FusedMoeGpuCall call, FusedMoeGpuScratch scratch, Product product) {
  __shared__ float x_tile[kTile][kTile];
  __shared__ float weight_tile[kTile][kTile + 1];
  const int num_tiles = scratch.tile_begins[call.num_experts];
  if (static_cast<int>(blockIdx.y) >= num_tiles) return;
  const int expert = expert_of_tile(scratch.tile_begins, call.num_experts, blockIdx.y);
  const int tile = blockIdx.y - scratch.tile_begins[expert];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int row = scratch.row_begins[expert] + tile * kTile + ty;
  const bool exists = row < scratch.row_begins[expert + 1];
  const int choice = exists ? scratch.choices[row] : 0;
  const int64_t x_row = product.x_divisor > 0 ? choice / product.x_divisor : row;
  const X* x = static_cast<const X*>(product.x) + x_row * product.x_stride;
  const int weight_row = blockIdx.x * kTile + ty;
  const int column = blockIdx.x * kTile + tx;
  const ExpertMatrices& matrices = product.matrices;
  const bool scales_sums = matrices.scales_across <= 1;
  float sum = 0;
  for (int begin = 0; begin < product.num_columns; begin += kTile) {
    const int k = begin + tx;
    const bool in_k = k < product.num_columns;
    x_tile[ty][tx] = in_k && exists ? to_float(x[k]) : 0.0f;
    float value = 0;
    if (in_k && weight_row < product.num_rows) {
      value = weight_at<W>(matrices, expert, weight_row, k, product.num_columns);
      if (!scales_sums) value *= scale_at(matrices, expert, weight_row, k / matrices.scale_columns);
    }
    weight_tile[ty][tx] = value;
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += x_tile[ty][i] * weight_tile[tx][i];
    __syncthreads();
  }
  if (!exists || column >= product.num_rows) return;
  const int64_t y_row = product.writes_choices ? choice : row;
  if (scales_sums) sum *= scale_at(matrices, expert, column, 0);
  product.y[y_row * product.num_rows + column] =
      sum + bias_at(matrices, expert, column, product.num_rows);
}

template <typename X>
__global__ void activate(FusedMoeGpuCall call, FusedMoeGpuScratch scratch) {
  const int row = blockIdx.x, size = call.intermediate_size;
  if (row >= scratch.row_begins[call.num_experts]) return;
  const float* sums = scratch.sums + int64_t{row} * 2 * size;
  const int step = call.activation.is_interleaved ? 2 : 1;
  const int to_up = call.activation.is_interleaved ? 1 : size;
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    static_cast<X*>(scratch.activated)[int64_t{row} * size + i] =
        from_float<X>(activated(call.activation, sums[i * step], sums[i * step + to_up]));
  }
}

template <typename Y>
__global__ void combine(FusedMoeGpuCall call, FusedMoeGpuScratch scratch) {
  const int token = blockIdx.x;
  for (int i = threadIdx.x; i < call.hidden_size; i += blockDim.x) {
    float total = 0;
    for (int j = 0; j < call.top_k; ++j) {
      const int choice = token * call.top_k + j;
      if (place_of(call, choice) < 0) continue;
      total += call.weights[choice] * scratch.results[int64_t{choice} * call.hidden_size + i];
    }
    static_cast<Y*>(call.y)[token * call.y_stride + i] = from_float<Y>(total);
  }
}

template <typename X>
void launch_product(const FusedMoeGpuCall& call,
                    const FusedMoeGpuScratch& scratch,
                    const Product& product,
                    gpuStream_t stream) {
  const int num_choices = call.num_tokens * call.top_k;
  const int most_tiles = (num_choices + kTile - 1) / kTile + min(num_choices, call.num_experts);
  const dim3 grid((product.num_rows + kTile - 1) / kTile, most_tiles), block(kTile, kTile);
  switch (call.format) {
    case ExpertFormat::kAsX:
      multiply_tiles<X, X><<<grid, block, 0, stream>>>(call, scratch, product);
      break;
    case ExpertFormat::kFloat8:
      multiply_tiles<X, Float8><<<grid, block, 0, stream>>>(call, scratch, product);
      break;
    case ExpertFormat::kFloat4:
      multiply_tiles<X, PackedFloat4><<<grid, block, 0, stream>>>(call, scratch, product);
      break;
    case ExpertFormat::kFloat4Images:
      multiply_tiles<X, Float4Images><<<grid, block, 0, stream>>>(call, scratch, product);
      break;
    case ExpertFormat::kInt8:
      multiply_tiles<X, int8_t><<<grid, block, 0, stream>>>(call, scratch, product);
      break;
    case ExpertFormat::kInt4:
      multiply_tiles<X, PackedInt4><<<grid, block, 0, stream>>>(call, scratch, product);
      break;
  }
}

gpuError_t launch_sort(const FusedMoeGpuCall& call,
                       const FusedMoeGpuScratch& scratch,
                       int tile_rows,
                       gpuStream_t stream) {
  const size_t counts_size =
      ChoiceSorter<kSortWarps, kSortChoices>::counts_size(call.num_experts) * sizeof(uint32_t);
  return launch(sort_choices,
                dim3(1),
                dim3(kSortWarps * kWarpSize),
                counts_size,
                stream,
                true,
                call,
                scratch,
                tile_rows);
}

}  // namespace

void fused_moe_cuda(const FusedMoeGpuCall& call, const FusedMoeGpuScratch& scratch, void* queue) {
  const auto stream = static_cast<gpuStream_t>(queue);
  const int num_choices = call.num_tokens * call.top_k;
  (void)launch_sort(call, scratch, kTile, stream);
  dispatch_element(call.element, [&]<typename X>(ElementTag<X>) {
    launch_product<X>(call,
                      scratch,
                      {.matrices = call.gate_up,
                       .x = call.x,
                       .y = scratch.sums,
                       .x_stride = call.x_stride,
                       .num_rows = 2 * call.intermediate_size,
                       .num_columns = call.hidden_size,
                       .x_divisor = call.top_k,
                       .writes_choices = false},
                      stream);
    activate<X><<<num_choices, kThreads, 0, stream>>>(call, scratch);
    launch_product<X>(call,
                      scratch,
                      {.matrices = call.down,
                       .x = scratch.activated,
                       .y = scratch.results,
                       .x_stride = call.intermediate_size,
                       .num_rows = call.hidden_size,
                       .num_columns = call.intermediate_size,
                       .x_divisor = 0,
                       .writes_choices = true},
                      stream);
  });
  dispatch_element(call.y_element, [&]<typename Y>(ElementTag<Y>) {
    combine<Y><<<call.num_tokens, kThreads, 0, stream>>>(call, scratch);
  });
  check_gpu_launch("fused_moe");
}

}  // namespace atom::ops
