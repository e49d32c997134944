// Inside mla_prefill: calls by a variant of one's choice, for tests and benchmarks.
#pragma once

#include <string_view>

#include "ops/mla_prefill/mla_prefill.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here. On a GPU the keys of
// max_heads heads are in memory together; 0: of as many as fit.
bool mla_prefill_by(std::string_view variant,
                    const Stream& stream,
                    const MlaPrefillParams& params,
                    Workspace& scratch,
                    int64_t max_heads = 0);

}  // namespace atom::ops
