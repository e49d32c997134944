// Inside sigmoid_gate: calls by a variant of one's choice, for tests.
#pragma once

#include <string_view>

#include "ops/quantize/quantized_rows.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool sigmoid_gate_by(std::string_view variant,
                     const Stream& stream,
                     const Tensor& x,
                     const Tensor& gate,
                     bool adds,
                     const Tensor& out,
                     const QuantizedRows& codes = {});  // in place of out, which is undefined

}  // namespace atom::ops
