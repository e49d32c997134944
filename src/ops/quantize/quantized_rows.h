// A matrix of quantized activations with its scales, as quantizing operators write it and linear()
// reads it.
#pragma once

#include "tensor/quant_type.h"
#include "tensor/tensor.h"

namespace atom::ops {

struct QuantizedRows {
  Tensor values;  // [T, K] FP8, row stride allowed
  Tensor scales;  // float32: [T], or [1] per tensor
  QuantType granularity = QuantType::kPerToken;
  bool is_static = false;  // the scales were given before; else they are written with the values

  bool defined() const { return values.defined(); }
};

}  // namespace atom::ops
