// A gate on a layer's output: out = x * sigmoid(gate), or added to what is there. One gate per
// element, as on the heads of an attention, or one per row, as on a shared expert. In float32 with
// one rounding.
#pragma once

#include "ops/quantize/quantized_rows.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom::ops {

// Strides of the first two dimensions are allowed. float32, float16 or bfloat16.
void sigmoid_gate(const Stream& stream,
                  const Tensor& x,     // [num_tokens, num_heads, head_dim]
                  const Tensor& gate,  // [num_tokens, num_heads, head_dim or 1] x's dtype
                  const Tensor& out);  // like x; may be x or gate itself

// Leaves `codes` of the result instead, a token's heads as one row: bit for bit what ops::quantize
// gives of `out`, which is contiguous in a token, may be x, and holds anything afterwards.
void sigmoid_gate(const Stream& stream,
                  const Tensor& x,
                  const Tensor& gate,
                  const Tensor& out,
                  const QuantizedRows& codes);  // [num_tokens, num_heads * head_dim]

// out += x * sigmoid(gate).
void add_sigmoid_gate(const Stream& stream,
                      const Tensor& x,
                      const Tensor& gate,
                      const Tensor& out);  // like x; read and written

}  // namespace atom::ops
