// Inside quantize: calls by a variant of one's choice, for tests and benchmarks.
#pragma once

#include <string_view>

#include "ops/quantize/quantize.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool quantize_by(std::string_view variant,
                 const Stream& stream,
                 const Tensor& x,
                 const QuantizedRows& out);

}  // namespace atom::ops
