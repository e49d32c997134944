// Inside sparse_attention: calls by a variant of one's choice, for tests.
#pragma once

#include <string_view>

#include "ops/sparse_attention/sparse_attention.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool sparse_attention_by(std::string_view variant,
                         const Stream& stream,
                         const SparseAttentionParams& params);

}  // namespace atom::ops
