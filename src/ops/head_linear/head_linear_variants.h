// Inside head_linear: calls by a variant of one's choice, for tests.
#pragma once

#include <string_view>

#include "ops/head_linear/head_linear.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool head_linear_by(std::string_view variant,
                    const Stream& stream,
                    const Tensor& x,
                    std::span<const LinearWeight> weights,
                    const Tensor& y,
                    Workspace& scratch);

}  // namespace atom::ops
