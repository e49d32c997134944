// Inside qk_norm_rope_cache: calls by a variant of one's choice, for tests.
#pragma once

#include <string_view>

#include "ops/qk_norm_rope_cache/qk_norm_rope_cache.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool qk_norm_rope_cache_by(std::string_view variant,
                           const Stream& stream,
                           const QkNormRopeCacheParams& params);

// Runs an operator for each part, on any device.
void qk_norm_rope_cache_separate(const Stream& stream, const QkNormRopeCacheParams& params);

}  // namespace atom::ops
