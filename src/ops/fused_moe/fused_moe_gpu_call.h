// From a checked call of fused_moe to the GPU kernels' one.
#pragma once

#include "ops/fused_moe/fused_moe_gpu.h"
#include "ops/fused_moe/fused_moe_variants.h"
#include "ops/fused_moe/moe_token_codes.h"

namespace atom::ops {

// Of tokens [first_token, first_token + num_tokens). Ends the process unless the experts' matrices
// are slices of one tensor, row-major or images.
FusedMoeGpuCall gpu_call(const FusedMoeCall& call, int64_t first_token, int64_t num_tokens);

// Whether the call has x in codes as the kernels for FP8 make them themselves.
bool has_token_codes(const FusedMoeCall& call);
// Those of some tokens; none unless it has.
MoeTokenCodes token_codes(const FusedMoeCall& call, int64_t first_token, int64_t num_tokens);

bool is_row_major(const FusedMoeCall& call);
// Row-major, or images.
bool has_gpu_layout(const FusedMoeCall& call);

}  // namespace atom::ops
