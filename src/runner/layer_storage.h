// The tensors of what layers keep between steps: one reservation's worth of paged caches and state
// slots, as many as the memory plan found room for.
#pragma once

#include <cstdint>

#include "nn/layer_cache.h"
#include "tensor/stream.h"

namespace atom {

struct StorageSize {
  int64_t num_blocks = 0;
  int64_t block_size = 0;  // tokens
  int64_t num_slots = 0;   // of states
};

// Where the stream works, uninitialized: the CPU's pages are touched when they are first written.
// Without memory on a dry run.
LayerStorage make_layer_storage(const Stream& stream,
                                const StorageSpec& spec,
                                const StorageSize& size);

}  // namespace atom
