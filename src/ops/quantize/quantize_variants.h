// Inside quantize: calls by a variant of one's choice, for tests and benchmarks, and what operators
// that quantize their own result share with it.
#pragma once

#include <string_view>

#include "ops/quantize/quantize.h"
#include "ops/quantize/quantize_kernels.h"
#include "tensor/tensor_check.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool quantize_by(std::string_view variant,
                 const Stream& stream,
                 const Tensor& x,
                 const QuantizedRows& out,
                 E8M0Rounding rounding = E8M0Rounding::kUp);

// Checks `out`, the codes of a [T, K] matrix of `dtype`, by the names that `check` knows, but for
// the K of codes of two values: that is `size` of the result. The rows themselves are still to be
// set.
QuantizeArgs checked_codes(TensorCheck& check, DType dtype, const QuantizedRows& out);

// Whether operators that compute rows have a kernel that leaves these codes: every format on the
// CPU, with or without the rows `out`; on a GPU either the rows or codes in FP8, without groups or
// in whole groups.
bool quantizes_with_its_producer(const Stream& stream,
                                 const Tensor& out,
                                 const QuantizedRows& codes);

}  // namespace atom::ops
