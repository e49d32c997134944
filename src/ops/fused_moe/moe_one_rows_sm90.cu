// Which calls of one or few tokens go by whole rows of matrices in bfloat16 or MXFP4, and their
// launch.
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

// Rows in MXFP4 are whole vectors; those in bfloat16 are pairs of chunks, behind which there is
// what may be no number.
bool fits_sizes(const FusedMoeGpuCall& call) {
  const int hidden = call.hidden_size, intermediate = call.intermediate_size;
  const bool is_float4 = call.format == ExpertFormat::kFloat4;
  const int unit = is_float4 ? kExponentColumns : 2 * RowTraits<BFloat16>::kChunkColumns;
  const int most_gates = is_float4 ? kMaxGateColumns<OneFloat4> : kMaxGateColumns<BFloat16>;
  const int most_downs = is_float4 ? kMaxColumns<OneFloat4> : kMaxColumns<BFloat16>;
  return hidden % unit == 0 && intermediate % unit == 0 && hidden <= most_gates &&
         intermediate <= most_downs;
}

}  // namespace

bool fits_moe_one_rows(const FusedMoeGpuCall& call) {
  const bool element =
      call.element == Element::kBFloat16 &&
      (call.y_element == Element::kBFloat16 || call.y_element == Element::kFloat32);
  const bool has_exponents = call.format == ExpertFormat::kFloat4;
  const int most_tokens =
      has_exponents ? RowTraits<OneFloat4>::kMostTokens : RowTraits<BFloat16>::kMostTokens;
  return element && (has_exponents || call.format == ExpertFormat::kAsX) &&
         call.num_tokens <= most_tokens && moe_one::fits_tokens(call) &&
         call.top_k <= kMostChoices && fits_sizes(call) &&
         fits_matrices(call.gate_up, has_exponents) && fits_matrices(call.down, has_exponents);
}

gpuError_t launch_moe_one_rows(const FusedMoeGpuCall& call,
                               const MoeOneRowsScratch& scratch,
                               gpuStream_t stream) {
  return call.format == ExpertFormat::kAsX ? launch_moe_one_rows_bfloat16(call, scratch, stream)
                                           : launch_moe_one_rows_float4(call, scratch, stream);
}

}  // namespace atom::ops
