// Shared experts that are computed apart from the routed ones.
#pragma once

#include "nn/build_context.h"
#include "nn/forward_context.h"

namespace atom {

// The checkpoint quantizes the shared experts as it does the routed ones, of which `build` names
// the module: they can be slots of the same stacks. Holds where nothing is quantized.
bool are_shared_experts_alike(const BuildContext& build);

// out += shared, both [num_tokens, hidden_size].
void add_shared_experts(const Tensor& shared, const Tensor& out, const ForwardContext& context);

}  // namespace atom
