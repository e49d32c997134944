// Inside rms_norm_quant_fp8: calls by a variant of one's choice, for tests and benchmarks.
#pragma once

#include <string_view>

#include "ops/rms_norm_quant_fp8/rms_norm_quant_fp8.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool rms_norm_quant_fp8_by(std::string_view variant,
                           const Stream& stream,
                           const Tensor& x,
                           const Tensor& residual,
                           const Tensor& weight,
                           float eps,
                           const QuantizedRows& out);

}  // namespace atom::ops
