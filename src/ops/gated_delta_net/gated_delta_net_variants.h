// Inside gated_delta_net: calls by a variant of one's choice, for tests and benchmarks.
#pragma once

#include <string_view>

#include "ops/gated_delta_net/gated_delta_net.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool gated_delta_net_by(std::string_view variant,
                        const Stream& stream,
                        const GatedDeltaNetParams& params,
                        Workspace& scratch);

}  // namespace atom::ops
