// The launches of fused_moe for many tokens by experts in FP8, by wide tiles.
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/tensor_map.cuh"
#include "ops/fused_moe/moe_sort.h"
#include "ops/fused_moe/moe_wide_float8_launch_sm90.h"

namespace atom::ops {
namespace {

using namespace device;

int divide_up(int a, int b) {
  return (a + b - 1) / b;
}

gpuError_t launch_matrices(const FusedMoeGpuCall& call,
                           const MoeFloat8Scratch& scratch,
                           bool gated,
                           int num_blocks,
                           gpuStream_t stream) {
  wide8::MoeWideFloat8Args args = wide8::args_of(call, scratch, gated);
  args.scales = *moe_scales_of(args.own, args.num_rows, args.num_columns);
  const void* x = gated ? scratch.x : scratch.shared.activated;
  const int64_t all_rows = int64_t{call.num_experts} * args.num_rows;
  if (!wide8::encode_codes(&args.x, x, args.rows_of_scales, args.num_columns, wide8::kTokenUnit) ||
      !wide8::encode_codes(
          &args.matrices, args.own.data, all_rows, args.num_columns, wide8::kProductRows)) {
    return cudaErrorNotSupported;
  }
  return (gated ? wide8::launch_gated : wide8::launch_down)(args, num_blocks, stream);
}

}  // namespace

namespace device::wide8 {

MoeWideFloat8Args args_of(const FusedMoeGpuCall& call,
                          const MoeFloat8Scratch& scratch,
                          bool gated) {
  MoeWideFloat8Args args{};
  args.call = call;
  args.scratch = scratch;
  args.own = gated ? call.gate_up : call.down;
  args.x_scales = gated ? scratch.x_scales : scratch.activated_scales;
  args.rows_of_scales = int64_t{call.num_tokens} * call.top_k;
  args.num_rows = gated ? 2 * call.intermediate_size : call.hidden_size;
  args.num_columns = gated ? call.hidden_size : call.intermediate_size;
  args.num_outputs = gated ? call.intermediate_size : call.hidden_size;
  args.num_column_tiles = divide_up(args.num_outputs, gated ? kBlockRows : 2 * kBlockRows);
  args.num_chunks = divide_up(args.num_columns, kPanelSize);
  return args;
}

bool encode_codes(CUtensorMap* map, const void* data, int64_t num_rows, int num_columns, int box) {
  const TensorMapShape<2> shape = {
      {static_cast<cuuint64_t>(num_columns), static_cast<cuuint64_t>(num_rows)},
      {static_cast<cuuint64_t>(num_columns)},
      {static_cast<cuuint32_t>(kPanelSize), static_cast<cuuint32_t>(box)}};
  return encode_tensor_map(map,
                           CU_TENSOR_MAP_DATA_TYPE_UINT8,
                           data,
                           shape,
                           CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

}  // namespace device::wide8

bool fits_moe_wide_float8(const FusedMoeGpuCall& call) {
  return fits_moe_float8(call);
}

gpuError_t launch_moe_wide_float8(const FusedMoeGpuCall& call,
                                  const MoeFloat8Scratch& scratch,
                                  gpuStream_t stream) {
  int gpu = 0, num_blocks = 0;
  gpuError_t error = cudaGetDevice(&gpu);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&num_blocks, cudaDevAttrMultiProcessorCount, gpu);
  }
  if (error == cudaSuccess) {
    error = sort_many_moe_choices(call, scratch.shared, kMoeWideFloat8Tokens, stream);
  }
  if (error == cudaSuccess) error = quantize_moe_rows(call, scratch, stream);
  if (error == cudaSuccess) error = launch_matrices(call, scratch, true, num_blocks, stream);
  if (error == cudaSuccess) error = launch_matrices(call, scratch, false, num_blocks, stream);
  return error == cudaSuccess ? add_moe_results(call, scratch.results, stream) : error;
}

}  // namespace atom::ops
