// Quantises activations to FP8 (E4M3): values[t, k] = x[t, k] / scale, to nearest even and limited
// to +-448; NaN stays NaN. A row depends on nothing but itself.
#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

// With a scale for each token, scales[t] = max_k |x[t, k]| / 448, and 1 for a row of zeros.
void quant_fp8_per_token(const Stream& stream,
                         const Tensor& x,        // [T, K] float32, float16 or bfloat16
                         const Tensor& values,   // [T, K] FP8
                         const Tensor& scales);  // [T] float32, written
// Both matrices may have a row stride.

// With a given scale for all.
void quant_fp8_static(const Stream& stream,
                      const Tensor& x,        // [T, K] float32, float16 or bfloat16
                      const Tensor& scale,    // [1] float32, over 0
                      const Tensor& values);  // [T, K] FP8

// Whether a code is NaN. Waits for the answer on a device: for loading.
bool holds_nan_fp8(const Stream& stream,
                   const Tensor& codes);  // [N, K] FP8, contiguous

}  // namespace atom::ops
