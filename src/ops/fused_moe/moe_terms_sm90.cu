// Which calls fused_moe by terms in FP8 takes, and its launches.
#include <algorithm>

#include "ops/fused_moe/moe_many.h"
#include "ops/fused_moe/moe_rows.h"
#include "ops/fused_moe/moe_terms_launch_sm90.h"
#include "ops/fused_moe/moe_terms_sizes.cuh"

namespace atom::ops {

bool fits_moe_terms(const FusedMoeGpuCall& call) {
  using namespace device::terms;
  constexpr int kMostRows = 8;
  const int most_columns = std::max(call.hidden_size, call.intermediate_size);

  return is_float4(call.format) && fits_moe_rows(call) &&
         call.num_tokens * call.top_k <= kMostRows * call.num_experts &&
         exponents_size_of(most_columns) <= kMostExponents + 128;
}

gpuError_t launch_moe_terms(const FusedMoeGpuCall& call,
                            const MoeTermsScratch& scratch,
                            gpuStream_t stream) {
  constexpr int kFewRows = 4;
  const bool is_few =
      call.num_tokens <= 8 || call.num_tokens * call.top_k < (kFewRows + 1) * call.num_experts;
  const int num_tokens = is_few ? 8 : 16;
  gpuError_t error = arrange_moe_terms(call, scratch, num_tokens, stream);
  if (error != cudaSuccess) return error;
  error = call.format == ExpertFormat::kFloat4Images
              ? launch_moe_terms_images(call, scratch, num_tokens, stream)
              : launch_moe_terms_float4(call, scratch, num_tokens, stream);
  return error == cudaSuccess ? add_moe_results(call, scratch.results, stream) : error;
}

}  // namespace atom::ops
