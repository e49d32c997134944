// The gated delta rule of long sequences by chunks on Hopper's matrix units.
#pragma once

#include "ops/gated_delta_rule/gated_delta_rule_kernels.h"

namespace atom::ops {

// Compute capability 9.0, bfloat16, heads of 128 x 128, rows at multiples of 16 bytes.
bool fits_chunked_sm90(const GatedDeltaRuleArgs& args);

// Bytes of scratch memory.
int64_t chunked_sm90_workspace_size(const GatedDeltaRuleArgs& args);

// On a GPU's queue. Sequences of fewer than kDeltaChunkMinTokens, those of which the state behind
// each token is kept, and those without a slot are left alone. False where the driver does not take
// the description of the rows.
[[nodiscard]] bool chunked_sm90(const GatedDeltaRuleArgs& args, void* workspace, void* queue);

// The same bits with both kernels side by side, where sequences are few and long: the second one
// begins when the first records are there. Tools that run kernels one after the other change no
// result.
[[nodiscard]] bool chunked_beside_sm90(const GatedDeltaRuleArgs& args,
                                       void* workspace,
                                       void* queue);

// Its two kernels: what does not depend on states, into the workspace, and the rest.
void prepare_chunks_sm90(const GatedDeltaRuleArgs& args, void* workspace, void* queue);
[[nodiscard]] bool advance_chunks_sm90(const GatedDeltaRuleArgs& args,
                                       const void* workspace,
                                       void* queue);

}  // namespace atom::ops
