// Inside argmax: calls by a variant of one's choice, for tests.
#pragma once

#include <string_view>

#include "ops/argmax/argmax.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool argmax_by(std::string_view variant,
               const Stream& stream,
               const Tensor& logits,
               int64_t num_ids,
               const Tensor& out,
               Workspace& scratch);

}  // namespace atom::ops
