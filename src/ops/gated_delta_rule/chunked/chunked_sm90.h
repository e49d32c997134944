// The gated delta rule of long sequences by chunks on Hopper's matrix units.
#pragma once

#include "ops/gated_delta_rule/gated_delta_rule_kernels.h"

namespace atom::ops {

// Compute capability 9.0, bfloat16, heads of 128 x 128, rows at multiples of 16 bytes.
bool fits_chunked_sm90(const GatedDeltaRuleArgs& args);

// Bytes of scratch memory.
int64_t chunked_sm90_workspace_size(const GatedDeltaRuleArgs& args);

// On a GPU's queue. Sequences of fewer than kDeltaChunkMinTokens, those of which the state behind
// each token is kept, and those without a slot are left alone.
void chunked_sm90(const GatedDeltaRuleArgs& args, void* workspace, void* queue);

}  // namespace atom::ops
