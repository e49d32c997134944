// The tensors of what layers keep between steps: paged caches and state slots, as many as the
// memory plan found room for.
#pragma once

#include <cstdint>
#include <span>

#include "nn/layer_cache.h"
#include "scheduler/scheduler_output.h"
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

// Copies the states of all layers from slot to slot, one copy after the other. On a device the
// copies are enqueued.
void copy_states(const Stream& stream,
                 const LayerStorage& storage,
                 std::span<const StateCopy> copies);

}  // namespace atom
