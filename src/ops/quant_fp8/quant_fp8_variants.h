// Inside quant_fp8: calls by a variant of one's choice, for tests and benchmarks.
#pragma once

#include <string_view>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here. `scales` [T] is written,
// `scales` [1] with `is_static` is read.
bool quant_fp8_by(std::string_view variant,
                  const Stream& stream,
                  const Tensor& x,
                  const Tensor& values,
                  const Tensor& scales,
                  bool is_static);

}  // namespace atom::ops
