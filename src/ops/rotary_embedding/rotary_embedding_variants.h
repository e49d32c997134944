// Inside rotary_embedding: calls by a variant of one's choice, for tests and benchmarks.
#pragma once

#include <string_view>

#include "ops/rotary_embedding/rotary_embedding.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool rotary_embedding_by(std::string_view variant,
                         const Stream& stream,
                         const Tensor& positions,
                         const Tensor& cos_sin,
                         const Tensor& q,
                         const Tensor& k,
                         RotaryStyle style);

}  // namespace atom::ops
