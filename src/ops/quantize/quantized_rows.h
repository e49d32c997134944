// A matrix of quantized activations with its scales, as quantizing operators write it and linear()
// reads it.
#pragma once

#include "tensor/quant_type.h"
#include "tensor/tensor.h"

namespace atom::ops {

// FP8 or INT8, or FP4: bytes of two values, the first in the lower half.
struct QuantizedRows {
  Tensor values;  // [T, K], with FP4 [T, K / 2]; row stride allowed
  // float32: [1] per tensor, [T] per token, [T, ceil(K / 128)] per 1x128; with FP4 per 1x32
  // [T, K / 32] exponents in bytes (E8M0).
  Tensor scales;
  QuantType granularity = QuantType::kPerToken;
  bool is_static = false;  // the scales were given before; else they are written with the values

  bool defined() const { return values.defined(); }
};

// How rows are quantized before a matrix multiplies them.
struct CodeFormat {
  QuantType granularity = QuantType::kNo;  // kNo: they are not
  DType dtype = DType::kFloat8E4M3;        // kInt8; kUInt8: FP4
  Tensor static_scale = {};  // [1] float32, given before; undefined: made with the codes

  bool is_quantized() const { return granularity != QuantType::kNo; }
};

}  // namespace atom::ops
