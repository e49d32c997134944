// What a linear layer multiplies: rows of the model's dtype, or those rows in FP8 as a fused
// operator left them.
#pragma once

#include "ops/quantize/quantized_rows.h"
#include "tensor/tensor.h"

namespace atom {

struct LinearInput {
  LinearInput(const Tensor& tensor) : rows(tensor) {}  // NOLINT: every tensor is one
  LinearInput(const Tensor& tensor, ops::QuantizedRows codes)
      : rows(tensor), quantised(std::move(codes)) {}

  bool is_quantised() const { return quantised.values.defined(); }
  // The memory of the rows, which a block's output may take.
  operator const Tensor&() const { return rows; }

  Tensor rows;                   // [num_tokens, in_features]; unspecified content beside codes
  ops::QuantizedRows quantised;  // undefined: `rows` count
};

}  // namespace atom
