// Inside silu_and_mul_quant_fp8: calls by a variant of one's choice, for tests and benchmarks.
#pragma once

#include <string_view>

#include "ops/silu_and_mul_quant_fp8/silu_and_mul_quant_fp8.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool silu_and_mul_quant_fp8_by(std::string_view variant,
                               const Stream& stream,
                               const Tensor& gate_up,
                               const QuantizedRows& out);

}  // namespace atom::ops
