// Inside rms_norm: calls by a variant of one's choice, for tests and benchmarks.
#pragma once

#include <string_view>

#include "ops/quantize/quantized_rows.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here. An undefined residual
// means rms_norm, a defined one add_rms_norm; of `out` and `codes` one may be undefined.
bool rms_norm_by(std::string_view variant,
                 const Stream& stream,
                 const Tensor& x,
                 const Tensor& residual,
                 const Tensor& weight,
                 float eps,
                 const Tensor& out,
                 const QuantizedRows& codes = {});

}  // namespace atom::ops
