// Inside mla_attention: calls by a variant of one's choice, for tests.
#pragma once

#include <string_view>

#include "ops/mla_attention/mla_attention.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool mla_attention_by(std::string_view variant,
                      const Stream& stream,
                      const MlaAttentionParams& params,
                      Workspace& scratch);

}  // namespace atom::ops
