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
  int64_t weights = 0;             // as the kernels of this machine store them, with rope tables
  int64_t workspace = 0;           // activations and scratch of the largest step
  int64_t step_inputs = 0;         // token ids, block tables, ... of the largest step
  int64_t kv_bytes_per_block = 0;  // of a group of layers (SchedulerConfig::num_kv_groups)
  int32_t num_blocks = 0;
  int32_t block_size = 0;  // tokens
  int32_t max_model_len = 0;
  int64_t blocks_per_sequence = 0;  // of max_model_len tokens, all groups, at most
  // Layers with a window: what a sequence holds for them of these, at most, and while it decodes.
  int64_t window_blocks_per_sequence = 0;
  int64_t window_blocks_in_decode = 0;
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
  // That fit, in sequences of max_model_len where layers have a window.
  int64_t num_cached_tokens() const {
    if (window_blocks_per_sequence == 0) return int64_t{num_blocks} * block_size;
    return int64_t{num_blocks} * max_model_len / blocks_per_sequence;
  }
  // What layers without a window take for each token; 0: all have one.
  int64_t kv_bytes_per_token() const {
    const bool all_windowed = window_blocks_per_sequence == blocks_per_sequence;
    return all_windowed ? 0 : kv_bytes_per_block / block_size;
  }
  int64_t window_bytes_per_sequence() const {
    return window_blocks_per_sequence * kv_bytes_per_block;
  }
  int64_t window_bytes_in_decode() const { return window_blocks_in_decode * kv_bytes_per_block; }
};

// An error when the model and one sequence of max_model_len do not fit; it gives the numbers and
// the flags that would help.
Result<MemoryPlan> plan_memory(const ResolvedConfig& config, const BuiltModel& built);

// Called by all ranks at once: takes the least that any of them has room for, since all keep the
// same blocks and slots.
Status agree_on_memory(const ParallelContext& parallel, ThreadPool* pool, MemoryPlan* plan);

}  // namespace atom
