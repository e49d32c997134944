// The activation of a gated MLP: out = silu(gate) * up with silu(x) = x / (1 + exp(-x)), in float32
// with one rounding.
#pragma once

#include "ops/quantize/quantized_rows.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom::ops {

// float32, float16 or bfloat16. Rows may be strided.
void silu_and_mul(const Stream& stream,
                  const Tensor& gate_up,  // [num_tokens, 2 * intermediate_size]: gate, then up
                  const Tensor& out);     // [num_tokens, intermediate_size] the same dtype

// The same with `codes` of the result: bit for bit what ops::quantize gives of `out`, which may be
// undefined when nobody needs the rows themselves.
void silu_and_mul(const Stream& stream,
                  const Tensor& gate_up,
                  const Tensor& out,
                  const QuantizedRows& codes,
                  Workspace& scratch);

}  // namespace atom::ops
