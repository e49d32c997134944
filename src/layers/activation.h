// Activations of gated MLPs.
#pragma once

#include "nn/forward_context.h"

namespace atom {

// gate_up [num_tokens, 2 I] -> silu(gate) * up, a workspace tensor [num_tokens, I].
Tensor silu_and_mul(const Tensor& gate_up, const ForwardContext& context);

}  // namespace atom
