// The launches of fused_moe by MXFP4 and FP8: which calls it takes, and both matrices.
#include "base/rounding.h"
#include "ops/device/tensor_map.cuh"
#include "ops/fused_moe/moe_float8_args.cuh"
#include "ops/fused_moe/moe_mixed_launch_sm90.h"
#include "ops/fused_moe/moe_rows.h"
#include "ops/fused_moe/moe_sort.h"

namespace atom::ops {
namespace {

using namespace device::mixed;
using device::kExponentColumns;

// What encode_code_rows() boxes.
static_assert(kTokenSize == kMoeCodeGroup);

bool encode_matrices(CUtensorMap* map, const void* data, int64_t num_rows, int num_columns) {
  const auto row_size = static_cast<cuuint64_t>(num_columns / 2);
  const TensorMapShape<2> shape = {
      {row_size, static_cast<cuuint64_t>(num_rows)}, {row_size}, {kRowSize, kTileRows}};
  return encode_tensor_map(map,
                           CU_TENSOR_MAP_DATA_TYPE_UINT8,
                           data,
                           shape,
                           CU_TENSOR_MAP_SWIZZLE_64B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
}

gpuError_t launch_matrices(const FusedMoeGpuCall& call,
                           const MoeMixedScratch& scratch,
                           bool gated,
                           int num_blocks,
                           gpuStream_t stream) {
  const int num_columns = gated ? call.hidden_size : call.intermediate_size;
  const int64_t num_choices = int64_t{call.num_tokens} * call.top_k;
  MoeMixedArgs args{};
  args.call = call;
  args.scratch = scratch;
  args.own = gated ? call.gate_up : call.down;
  args.num_rows = gated ? 2 * call.intermediate_size : call.hidden_size;
  args.num_outputs = gated ? call.intermediate_size : call.hidden_size;
  args.num_column_tiles = ceil_div(args.num_rows, kTileRows);
  args.num_groups = ceil_div(num_columns, kChunkColumns);
  args.num_chunks = args.num_groups | 1;
  args.ends_with_half = args.num_chunks * kChunkColumns - num_columns >= kChunkColumns / 2;
  args.row_exponents = num_columns / kExponentColumns;
  const int64_t all_rows = int64_t{call.num_experts} * args.num_rows;
  if (!device::encode_code_rows(&args.x, scratch.codes, num_choices, num_columns, kUnitTokens) ||
      !encode_matrices(&args.matrices, args.own.data, all_rows, num_columns)) {
    return cudaErrorNotSupported;
  }
  return (gated ? launch_gated : launch_down)(args, num_blocks, stream);
}

}  // namespace

bool fits_moe_mixed(int64_t hidden_size,
                    int64_t intermediate_size,
                    const GatedActivation& activation) {
  constexpr int kColumns = 2 * kExponentColumns;
  const auto fits = [](int64_t columns) {
    return columns % kColumns == 0 && columns <= kMostColumns;
  };
  const bool is_known = activation.kind == GatedActivationKind::kSilu ||
                        activation.kind == GatedActivationKind::kClampedSwiGlu;
  return is_known && activation.is_interleaved && fits(hidden_size) && fits(intermediate_size);
}

bool fits_moe_mixed(const FusedMoeGpuCall& call) {
  return call.format == ExpertFormat::kFloat4 && fits_moe_rows(call) &&
         call.top_k <= device::kWarpSize &&
         fits_moe_mixed(call.hidden_size, call.intermediate_size, call.activation);
}

gpuError_t launch_moe_mixed(const FusedMoeGpuCall& call,
                            const MoeMixedScratch& scratch,
                            gpuStream_t stream) {
  int gpu = 0, num_blocks = 0;
  gpuError_t error = cudaGetDevice(&gpu);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&num_blocks, cudaDevAttrMultiProcessorCount, gpu);
  }
  if (error == cudaSuccess) error = sort_many_moe_choices(call, scratch.shared, kTokens, stream);
  if (error == cudaSuccess) error = quantize_mixed_tokens(call, scratch, stream);
  if (error == cudaSuccess) {
    error = launch_matrices(call, scratch, true, num_blocks, stream);
  }
  if (error == cudaSuccess) error = quantize_mixed_activated(call, scratch, stream);
  if (error == cudaSuccess) {
    error = launch_matrices(call, scratch, false, num_blocks, stream);
  }
  return error == cudaSuccess ? add_moe_rows(call, scratch.values, scratch.shared.rows, stream)
                              : error;
}

}  // namespace atom::ops
