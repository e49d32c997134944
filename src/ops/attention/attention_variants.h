// Inside attention: calls by a variant of one's choice, for tests and benchmarks.
#pragma once

#include <string_view>

#include "ops/attention/attention.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool attention_by(std::string_view variant,
                  const Stream& stream,
                  const AttentionParams& params,
                  Workspace& scratch);

}  // namespace atom::ops
