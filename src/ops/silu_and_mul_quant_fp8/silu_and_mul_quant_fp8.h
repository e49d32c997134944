// The activation of a gated MLP with its result in FP8: what ops::silu_and_mul gives, rounded to
// the input's dtype, as ops::quantize_per_token or ops::quantize_static quantises it, bit for bit
// what the two operators one after the other compute on the same device.
#pragma once

#include "ops/quantize/quantized_rows.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

// float32, float16 or bfloat16. Rows may be strided.
void silu_and_mul_quant_fp8(const Stream& stream,
                            const Tensor& gate_up,  // [T, 2 K]: gate, then up
                            const QuantizedRows& out);

}  // namespace atom::ops
