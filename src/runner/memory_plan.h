// What a rank of an engine will hold in memory, computed from configuration alone: nothing is
// allocated or read. Printed by `atom plan`, checked before loading, and allocated as planned.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "config/resolve.h"
#include "runner/layer_storage.h"
#include "runner/model_source.h"

namespace atom {

struct MemoryPlan {
  // All in bytes.
  int64_t weights = 0;      // as the kernels of this machine store them, with rope tables
  int64_t workspace = 0;    // activations and scratch of the largest step
  int64_t step_inputs = 0;  // token ids, block tables, ... of the largest step
  int64_t kv_bytes_per_block = 0;
  int32_t num_blocks = 0;
  int32_t block_size = 0;  // tokens
  int64_t state_bytes_per_slot = 0;
  int32_t num_state_slots = 0;       // of running sequences, and of checkpoints
  int32_t num_checkpoint_slots = 0;  // of these
  int64_t padding = 0;               // on a device: between tensors, and counters of kernels
  int32_t num_ranks = 1;     // of all copies: they share what is free, each with its own of this
  int64_t available = 0;     // memory free now, this rank's share
  int64_t device_total = 0;  // of an accelerator, used or free; 0 on the CPU
  int64_t budget = 0;        // what the utilization allows of it
  Device device;

  int64_t kv_cache() const { return kv_bytes_per_block * num_blocks; }
  int64_t states() const { return state_bytes_per_slot * num_state_slots; }
  int64_t checkpoints() const { return state_bytes_per_slot * num_checkpoint_slots; }
  int64_t fixed() const { return weights + workspace + step_inputs + padding; }
  int64_t total() const { return fixed() + kv_cache() + states(); }
  StorageSize storage_size() const { return {num_blocks, block_size, num_state_slots}; }
  int64_t num_cached_tokens() const { return int64_t{num_blocks} * block_size; }
};

// An error when the model and one sequence of max_model_len do not fit; it gives the numbers and
// the flags that would help.
Result<MemoryPlan> plan_memory(const ResolvedConfig& config, const BuiltModel& built);

// By all ranks at once: the least that any of them has room for, since all keep the same blocks and
// slots.
Status agree_on_memory(const ParallelContext& parallel, ThreadPool* pool, MemoryPlan* plan);

}  // namespace atom
