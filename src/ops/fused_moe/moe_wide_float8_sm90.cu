// The launches of fused_moe for many tokens by experts in FP8, by wide tiles.
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/tensor_map.cuh"
#include "ops/fused_moe/moe_float8_args.cuh"
#include "ops/fused_moe/moe_sort.h"
#include "ops/fused_moe/moe_wide_float8_launch_sm90.h"

namespace atom::ops {
namespace {

using namespace device;

gpuError_t launch_matrices(const FusedMoeGpuCall& call,
                           const MoeFloat8Scratch& scratch,
                           bool gated,
                           int num_blocks,
                           gpuStream_t stream) {
  const int num_columns = gated ? call.hidden_size : call.intermediate_size;
  auto args = float8_matrix_args<wide8::MoeWideFloat8Args>(
      call, scratch, gated, gated ? wide8::kBlockRows : 2 * wide8::kBlockRows);
  args.rows_of_scales = int64_t{call.num_tokens} * call.top_k;
  const void* x = gated ? scratch.x : scratch.shared.activated;
  const int64_t all_rows = int64_t{call.num_experts} * args.num_rows;
  if (!encode_code_rows(&args.x, x, args.rows_of_scales, num_columns, wide8::kTokenUnit) ||
      !encode_code_rows(
          &args.matrices, args.own.data, all_rows, num_columns, wide8::kProductRows)) {
    return cudaErrorNotSupported;
  }
  return (gated ? wide8::launch_gated : wide8::launch_down)(args, num_blocks, stream);
}

}  // namespace

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
