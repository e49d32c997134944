// Allocates the paged KV cache that the memory plan found room for.
#pragma once

#include <vector>

#include "nn/kv_cache.h"
#include "tensor/stream.h"

namespace atom {

// One view per spec, in order, where the stream works. The CPU's pages are touched when tokens are
// first written.
std::vector<KVCacheView> allocate_kv_caches(const Stream& stream,
                                            const std::vector<KVCacheSpec>& specs,
                                            int64_t num_blocks,
                                            int64_t block_size);

}  // namespace atom
