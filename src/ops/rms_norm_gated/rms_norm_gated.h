// RMSNorm of every head, then a gate:
//   out = x / sqrt(mean(x^2) + eps) * weight * silu(gate)
// in float32 with one rounding. A row's result does not depend on the other rows.
#pragma once

#include "ops/quantize/quantized_rows.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom::ops {

// Row strides are allowed. float32, float16 or bfloat16.
void rms_norm_gated(const Stream& stream,
                    const Tensor& x,       // [num_tokens, num_heads * head_dim]
                    const Tensor& gate,    // like x
                    const Tensor& weight,  // [head_dim] float32
                    float eps,
                    const Tensor& out);  // like x; may be x or gate itself

// Leaves `codes` of the result instead: bit for bit what ops::quantize gives of `out`, which is
// undefined or memory like x, x or gate itself too, that holds anything afterwards.
void rms_norm_gated(const Stream& stream,
                    const Tensor& x,
                    const Tensor& gate,
                    const Tensor& weight,
                    float eps,
                    const Tensor& out,
                    const QuantizedRows& codes,
                    Workspace& scratch);

}  // namespace atom::ops
