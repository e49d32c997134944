// Inside causal_conv1d: calls by a variant of one's choice, for tests and benchmarks.
#pragma once

#include <string_view>

#include "ops/causal_conv1d/causal_conv1d.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool causal_conv1d_by(std::string_view variant,
                      const Stream& stream,
                      const CausalConv1dParams& params);

}  // namespace atom::ops
