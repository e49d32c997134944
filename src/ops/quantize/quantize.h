// Quantizes activations, or rows of a weight: values[t, k] = x[t, k] / scale, to nearest even and
// limited to what the values' dtype holds. A row depends on nothing but itself.
//
//   values (dtype)   granularity   scales
//   FP8, INT8        kPerToken     [T] written: max_k |x[t, k]| / 448 or / 127; 1 for a row of
//   zeros FP8, INT8        kPerTensor    [1] given (is_static), over 0 FP8              kPer1x128
//   [T, ceil(K / 128)] written, likewise for each group FP4 (kUInt8)     kPer1x32      [T, K / 32]
//   exponents written, by E8M0Rounding
//
// NaN stays NaN in FP8. The other formats have none: there it makes the scale of its row or group
// NaN, and so does infinity.
#pragma once

#include "ops/quantize/quantized_rows.h"
#include "tensor/float4.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom::ops {

void quantize(const Stream& stream,
              const Tensor& x,  // [T, K] float32, float16 or bfloat16; row stride allowed
              const QuantizedRows& out,
              E8M0Rounding rounding = E8M0Rounding::kUp);

// Where rows [num_rows, size] are quantized to: workspace tensors, except for a static scale.
QuantizedRows quantized_rows(const CodeFormat& format,
                             int64_t num_rows,
                             int64_t size,
                             Workspace& workspace);

// Whether a code is NaN. Waits for the answer on a device: for loading.
bool holds_nan(const Stream& stream,
               const Tensor& codes);  // [N, K] FP8, contiguous

}  // namespace atom::ops
