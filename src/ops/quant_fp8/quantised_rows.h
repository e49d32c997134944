// A matrix of activations in FP8 (E4M3) with its scales, as quantising operators write it and
// linear() reads it.
#pragma once

#include "tensor/tensor.h"

namespace atom::ops {

struct QuantisedRows {
  Tensor values;           // [T, K] FP8, row stride allowed
  Tensor scales;           // float32: [T], written with the values, or [1], given before
  bool is_static = false;  // one given scale
};

}  // namespace atom::ops
