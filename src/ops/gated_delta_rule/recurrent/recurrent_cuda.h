// The recurrence token by token for heads of 128 x 128, by the bytes of the states.
#pragma once

#include "ops/gated_delta_rule/gated_delta_rule_kernels.h"

namespace atom::ops {

bool fits_recurrent_cuda(const GatedDeltaRuleArgs& args);

// On a GPU's queue. Sequences of `max_tokens` and more whose states are not all kept are left
// alone; 0: of any number. `splits` blocks (1, 2 or 4) share a value head's columns; 0: as many as
// recurrent_splits() says.
void recurrent_cuda(const GatedDeltaRuleArgs& args,
                    int64_t max_tokens,
                    void* queue,
                    int splits = 0);

// How many blocks share a value head's columns: enough to fill the card.
int recurrent_splits(int64_t num_heads, int64_t max_splits);

}  // namespace atom::ops
