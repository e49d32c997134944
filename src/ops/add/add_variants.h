// Inside add: calls by a variant of one's choice, for tests.
#pragma once

#include <string_view>

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool add_by(std::string_view variant, const Stream& stream, const Tensor& x, const Tensor& out);

}  // namespace atom::ops
