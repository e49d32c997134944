// Inside silu_and_mul: calls by a variant of one's choice, for tests and benchmarks.
#pragma once

#include <string_view>

#include "ops/quantize/quantized_rows.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here. Of `out` and `codes` one
// may be undefined.
bool silu_and_mul_by(std::string_view variant,
                     const Stream& stream,
                     const Tensor& gate_up,
                     const Tensor& out,
                     const QuantizedRows& codes = {});

}  // namespace atom::ops
