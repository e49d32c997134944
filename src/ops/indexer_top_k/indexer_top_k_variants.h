// Inside indexer_top_k: calls by a variant of one's choice, for tests and benchmarks.
#pragma once

#include <string_view>

#include "ops/indexer_top_k/indexer_top_k.h"

namespace atom::ops {

// False, with nothing done, when the variant cannot run this call here.
bool indexer_top_k_by(std::string_view variant,
                      const Stream& stream,
                      const IndexerTopKParams& params,
                      Workspace& scratch);

}  // namespace atom::ops
