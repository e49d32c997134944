// Which calls of one token go by whole rows of matrices in bfloat16 or MXFP4, and their launch.
#include "ops/fused_moe/moe_one_rows_launch_sm90.h"
#include "ops/fused_moe/moe_one_rows_stage.cuh"

namespace atom::ops {
namespace {

using namespace device;
using namespace device::moe_one_rows;

bool is_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % kVectorSize == 0;
}

bool fits_matrices(const ExpertMatrices& matrices, bool has_exponents) {
  return is_aligned(matrices.data) && matrices.expert_stride % kVectorSize == 0 &&
         (!has_exponents || (matrices.exponents != nullptr && is_aligned(matrices.exponents) &&
                             matrices.exponent_stride % kVectorSize == 0));
}

bool fits_size(const FusedMoeGpuCall& call, int size) {
  // Rows in MXFP4 are whole vectors; both parts of a row in bfloat16 are whole chunks, behind which
  // there is what may be no number.
  if (call.format == ExpertFormat::kFloat4) {
    return size % kExponentColumns == 0 && size <= kMaxColumns<OneFloat4>;
  }
  using Traits = RowTraits<BFloat16>;
  return size % (Traits::kParts * Traits::kChunkColumns) == 0 && size <= kMaxColumns<BFloat16>;
}

}  // namespace

bool fits_moe_one_rows(const FusedMoeGpuCall& call) {
  const bool element =
      call.element == Element::kBFloat16 &&
      (call.y_element == Element::kBFloat16 || call.y_element == Element::kFloat32);
  const bool has_exponents = call.format == ExpertFormat::kFloat4;
  return element && (has_exponents || call.format == ExpertFormat::kAsX) && call.num_tokens == 1 &&
         call.top_k <= kMostChoices && is_aligned(call.x) && fits_size(call, call.hidden_size) &&
         fits_size(call, call.intermediate_size) && fits_matrices(call.gate_up, has_exponents) &&
         fits_matrices(call.down, has_exponents);
}

gpuError_t launch_moe_one_rows(const FusedMoeGpuCall& call,
                               const MoeOneRowsScratch& scratch,
                               gpuStream_t stream) {
  return call.format == ExpertFormat::kAsX ? launch_moe_one_rows_bfloat16(call, scratch, stream)
                                           : launch_moe_one_rows_float4(call, scratch, stream);
}

}  // namespace atom::ops
