// Inside latent_norm_rope_cache: calls by a variant of one's choice, for tests.
#pragma once

#include <string_view>

#include "ops/latent_norm_rope_cache/latent_norm_rope_cache.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool latent_norm_rope_cache_by(std::string_view variant,
                               const Stream& stream,
                               const LatentNormRopeCacheParams& params);

}  // namespace atom::ops
