// RMSNorm of every head, then a gate:
//   out = x / sqrt(mean(x^2) + eps) * weight * silu(gate)
// in float32 with one rounding. A row's result does not depend on the other rows.
#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

// Row strides are allowed. float32, float16 or bfloat16.
void rms_norm_gated(const Stream& stream,
                    const Tensor& x,       // [num_tokens, num_heads * head_dim]
                    const Tensor& gate,    // like x
                    const Tensor& weight,  // [head_dim] float32
                    float eps,
                    const Tensor& out);  // like x; may be x or gate itself

}  // namespace atom::ops
