// RMSNorm, alone or after the residual addition, with its result in FP8: what ops::rms_norm or
// ops::add_rms_norm gives, rounded to x's dtype, as ops::quantize_per_token or
// ops::quantize_static quantises it, bit for bit what the two operators one after the other
// compute on the same device.
#pragma once

#include "ops/quantize/quantized_rows.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

void rms_norm_quant_fp8(const Stream& stream,
                        const Tensor& x,         // [T, K] float32, float16 or bfloat16
                        const Tensor& residual,  // like x, read and written; or undefined: none
                        const Tensor& weight,    // [K] x's dtype or float32
                        float eps,
                        const QuantizedRows& out);

}  // namespace atom::ops
