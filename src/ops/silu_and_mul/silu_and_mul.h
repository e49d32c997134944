// The activation of a gated MLP: out = silu(gate) * up with silu(x) = x / (1 + exp(-x)), in float32
// with one rounding.
#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

// float32, float16 or bfloat16. Rows may be strided.
void silu_and_mul(const Stream& stream,
                  const Tensor& gate_up,  // [num_tokens, 2 * intermediate_size]: gate, then up
                  const Tensor& out);     // [num_tokens, intermediate_size] the same dtype

}  // namespace atom::ops
