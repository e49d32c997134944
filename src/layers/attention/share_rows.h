// Rows of paged caches that ranks of a context-parallel group have stored in this step.
#pragma once

#include "nn/forward_context.h"
#include "nn/layer_cache.h"

namespace atom {

// Brings to this rank's cache what other ranks have stored in theirs, as it lies there. A
// collective of ContextSplit::ranks; of a step that is not split nothing.
void share_rows(const ForwardContext& context, CacheHandle cache);

}  // namespace atom
