// The launches of fused_moe for many tokens by experts in FP8, by whole tiles.
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/tensor_map.cuh"
#include "ops/fused_moe/moe_float8_args.cuh"
#include "ops/fused_moe/moe_sort.h"
#include "ops/fused_moe/moe_whole_float8_launch_sm90.h"

namespace atom::ops {
namespace {

using namespace device;

// See kOrderedRows.
bool encode_matrices(CUtensorMap* map, const void* data, int64_t num_rows, int num_columns) {
  const auto size = static_cast<cuuint64_t>(num_columns);
  const TensorMapShape<5> shape = {
      {size, 2, 4, 4, static_cast<cuuint64_t>(num_rows / whole8::kOrderedRows)},
      {size, 8 * size, 2 * size, whole8::kOrderedRows * size},
      {whole8::kPanelSize, 2, 4, 4, whole8::kPartRows / whole8::kOrderedRows}};
  return encode_tensor_map(map,
                           CU_TENSOR_MAP_DATA_TYPE_UINT8,
                           data,
                           shape,
                           CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

bool encode_results(CUtensorMap* map, const void* data, int64_t num_rows, int num_columns) {
  const TensorMapShape<2> shape = {
      {static_cast<cuuint64_t>(num_columns), static_cast<cuuint64_t>(num_rows)},
      {static_cast<cuuint64_t>(num_columns) * sizeof(uint16_t)},
      {whole8::kBoxOutputs, whole8::kBoxRows}};
  return encode_tensor_map(map,
                           CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                           data,
                           shape,
                           CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_NONE);
}

// Tokens' codes and their scales: those of the call, or made before.
void set_tokens(whole8::MoeWholeFloat8Args* args, const MoeTokenCodes& codes) {
  args->x_codes = args->scratch.x;
  args->x_stride = args->num_columns;
  args->chunk_step = args->call.num_tokens;
  if (!codes.defined()) return;
  args->x_codes = codes.values;
  args->x_stride = static_cast<int>(codes.stride);
  args->x_scales = codes.scales;
  args->chunk_step = 1;
  args->scale_step = args->num_chunks;
}

gpuError_t launch_matrices(const FusedMoeGpuCall& call,
                           const MoeTokenCodes& codes,
                           const MoeFloat8Scratch& scratch,
                           bool gated,
                           int num_blocks,
                           gpuStream_t stream) {
  const int num_columns = gated ? call.hidden_size : call.intermediate_size;
  const int64_t num_rows = int64_t{call.num_tokens} * call.top_k;
  auto args = float8_matrix_args<whole8::MoeWholeFloat8Args>(
      call, scratch, gated, gated ? whole8::kPartRows : 2 * whole8::kPartRows);
  args.num_columns = num_columns;
  args.chunk_step = num_rows;
  args.scale_step = 1;
  if (gated) set_tokens(&args, codes);
  const int64_t all_rows = int64_t{call.num_experts} * args.num_rows;
  if ((!gated && !encode_results(&args.results, scratch.results, num_rows, args.num_outputs)) ||
      (!gated &&
       !encode_code_rows(
           &args.x, scratch.shared.activated, num_rows, num_columns, whole8::kWarpgroupTokens)) ||
      !encode_matrices(&args.matrices, args.own.data, all_rows, num_columns)) {
    return cudaErrorNotSupported;
  }
  return (gated ? whole8::launch_gated : whole8::launch_down)(args, num_blocks, stream);
}

}  // namespace

bool fits_moe_whole_float8(const FusedMoeGpuCall& call) {
  return fits_moe_float8(call) && call.hidden_size % kMoeCodeGroup == 0 &&
         call.intermediate_size % kMoeCodeGroup == 0;
}

gpuError_t launch_moe_whole_float8(const FusedMoeGpuCall& call,
                                   const MoeTokenCodes& codes,
                                   const MoeFloat8Scratch& scratch,
                                   gpuStream_t stream) {
  int gpu = 0, num_blocks = 0;
  gpuError_t error = cudaGetDevice(&gpu);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&num_blocks, cudaDevAttrMultiProcessorCount, gpu);
  }
  if (error == cudaSuccess) {
    error = sort_many_moe_choices(call, scratch.shared, kMoeWholeFloat8Tokens, stream);
  }
  if (error == cudaSuccess && !codes.defined()) error = quantize_moe_tokens(call, scratch, stream);
  if (error == cudaSuccess) error = launch_matrices(call, codes, scratch, true, num_blocks, stream);
  if (error == cudaSuccess) {
    error = launch_matrices(call, codes, scratch, false, num_blocks, stream);
  }
  return error == cudaSuccess ? add_moe_rows(call, scratch.results, scratch.shared.rows, stream)
                              : error;
}

}  // namespace atom::ops
