// The launches of fused_moe for many tokens by experts in MXFP4 that are expanded to FP8.
#include <initializer_list>

#include "ops/device/programmatic_launch.cuh"
#include "ops/device/tensor_map.cuh"
#include "ops/fused_moe/moe_sort.h"
#include "ops/fused_moe/moe_wide_float4.h"
#include "ops/fused_moe/moe_wide_float4_codes.cuh"
#include "ops/fused_moe/moe_wide_float8_launch_sm90.h"

namespace atom::ops {
namespace {

using namespace device;

constexpr int kScaleWarps = 8;  // rows of a block

// Of all experts' rows, by a warp each: a power of two of a row's largest factor.
__global__ void __launch_bounds__(kScaleWarps* kWarpSize)
    scale_rows(const uint8_t* exponents, int64_t num_rows, int row_exponents, float* scales) {
  allow_next_grid();
  wait_for_previous_grid();
  const int64_t row = int64_t{blockIdx.x} * kScaleWarps + threadIdx.x / kWarpSize;
  if (row >= num_rows) return;
  const auto* pairs = reinterpret_cast<const uint16_t*>(exponents + row * row_exponents);
  int largest = 0;
  for (int i = threadIdx.x % kWarpSize; i < row_exponents / 2; i += kWarpSize) {
    const int pair = __ldg(pairs + i);
    largest = max(largest, max(pair & 255, pair >> 8));
  }
  largest = __reduce_max_sync(0xffffffffu, largest);
  if (threadIdx.x % kWarpSize == 0) scales[row] = wide8::row_scale_of(largest);
}

gpuError_t launch_scales(const FusedMoeGpuCall& call,
                         const ExpertMatrices& matrices,
                         int num_rows,
                         int num_columns,
                         float* scales,
                         gpuStream_t stream) {
  const int64_t all_rows = int64_t{call.num_experts} * num_rows;
  return launch(scale_rows,
                dim3(static_cast<unsigned>((all_rows + kScaleWarps - 1) / kScaleWarps)),
                dim3(kScaleWarps * kWarpSize),
                0,
                stream,
                true,
                matrices.exponents,
                all_rows,
                num_columns / kExponentColumns,
                scales);
}

// Rows of codes in MXFP4, in boxes of what a chunk of half a tile's rows has.
bool encode_float4(CUtensorMap* map, const void* data, int64_t num_rows, int num_columns) {
  const auto row_size = static_cast<cuuint64_t>(num_columns / 2);
  const TensorMapShape<2> shape = {{row_size, static_cast<cuuint64_t>(num_rows)},
                                   {row_size},
                                   {wide8::kCodeRowSize, wide8::kBlockRows}};
  return encode_tensor_map(map,
                           CU_TENSOR_MAP_DATA_TYPE_UINT8,
                           data,
                           shape,
                           CU_TENSOR_MAP_SWIZZLE_64B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
}

gpuError_t launch_matrices(const FusedMoeGpuCall& call,
                           const MoeFloat4Scratch& scratch,
                           bool gated,
                           int num_blocks,
                           gpuStream_t stream) {
  wide8::MoeWideFloat8Args args = wide8::args_of(call, scratch.shared, gated);
  args.scales = MoeRowScales::kEach;
  args.own.scales = gated ? scratch.gate_up_scales : scratch.down_scales;
  args.own.scale_stride = args.num_rows;
  const void* x = gated ? scratch.shared.x : scratch.shared.shared.activated;
  const int64_t all_rows = int64_t{call.num_experts} * args.num_rows;
  if (!wide8::encode_codes(&args.x, x, args.rows_of_scales, args.num_columns, wide8::kTokenUnit) ||
      !encode_float4(&args.matrices, args.own.data, all_rows, args.num_columns)) {
    return cudaErrorNotSupported;
  }
  return (gated ? wide8::launch_float4_gated : wide8::launch_float4_down)(args, num_blocks, stream);
}

bool is_aligned(const void* data, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % kVectorSize == 0 && bytes % kVectorSize == 0;
}

// Of one tensor with all experts' matrices. Exponents are loaded in pairs.
bool fits_matrices(const ExpertMatrices& matrices, int num_rows, int num_columns) {
  return num_columns % (2 * kExponentColumns) == 0 && is_aligned(matrices.data, num_columns / 2) &&
         matrices.expert_stride == int64_t{num_rows} * num_columns / 2 &&
         reinterpret_cast<uintptr_t>(matrices.exponents) % 2 == 0 &&
         matrices.exponent_stride == int64_t{num_rows} * num_columns / kExponentColumns;
}

}  // namespace

bool fits_moe_wide_float4(const FusedMoeGpuCall& call) {
  const GatedActivation& activation = call.activation;
  const bool is_known = activation.kind == GatedActivationKind::kSilu ||
                        activation.kind == GatedActivationKind::kClampedSwiGlu;
  const int size = call.intermediate_size;
  return call.element == Element::kBFloat16 && call.format == ExpertFormat::kFloat4 && is_known &&
         call.top_k <= kWarpSize && is_aligned(call.x, call.x_stride * 2) &&
         call.num_experts <= kMaxGpuExperts &&
         fits_matrices(call.gate_up, 2 * size, call.hidden_size) &&
         fits_matrices(call.down, call.hidden_size, size);
}

gpuError_t launch_moe_wide_float4(const FusedMoeGpuCall& call,
                                  const MoeFloat4Scratch& scratch,
                                  gpuStream_t stream) {
  int gpu = 0, num_blocks = 0;
  gpuError_t error = cudaGetDevice(&gpu);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&num_blocks, cudaDevAttrMultiProcessorCount, gpu);
  }
  const int hidden_size = call.hidden_size, size = call.intermediate_size;
  if (error == cudaSuccess) {
    error =
        launch_scales(call, call.gate_up, 2 * size, hidden_size, scratch.gate_up_scales, stream);
  }
  if (error == cudaSuccess) {
    error = launch_scales(call, call.down, hidden_size, size, scratch.down_scales, stream);
  }
  if (error == cudaSuccess) {
    error = sort_many_moe_choices(call, scratch.shared.shared, kMoeWideFloat8Tokens, stream);
  }
  if (error == cudaSuccess) error = quantize_moe_rows(call, scratch.shared, stream);
  if (error == cudaSuccess) error = launch_matrices(call, scratch, true, num_blocks, stream);
  if (error == cudaSuccess) error = launch_matrices(call, scratch, false, num_blocks, stream);
  return error == cudaSuccess ? add_moe_results(call, scratch.shared.results, stream) : error;
}

}  // namespace atom::ops
