// Activations of gated MLPs.
#pragma once

#include "layers/linear/linear_base.h"
#include "nn/forward_context.h"

namespace atom {

// silu(gate x) * up x [num_tokens, I] in the workspace, in the form in which `next` multiplies it.
LinearInput silu_and_mul(const LinearInput& x,
                         const LinearBase& gate_up,
                         const LinearBase& next,
                         const ForwardContext& context);

}  // namespace atom
