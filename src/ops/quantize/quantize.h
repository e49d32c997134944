// Quantizes activations: values[t, k] = x[t, k] / scale, to nearest even and limited to what the
// values' dtype holds; NaN stays NaN. A row depends on nothing but itself.
//
//   values  granularity   scales
//   FP8     kPerToken     [T] written: max_k |x[t, k]| / 448, and 1 for a row of zeros
//   FP8     kPerTensor    [1] given (is_static), over 0
#pragma once

#include "ops/quantize/quantized_rows.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

void quantize(const Stream& stream,
              const Tensor& x,  // [T, K] float32, float16 or bfloat16; row stride allowed
              const QuantizedRows& out);

// Whether a code is NaN. Waits for the answer on a device: for loading.
bool holds_nan(const Stream& stream,
               const Tensor& codes);  // [N, K] FP8, contiguous

}  // namespace atom::ops
