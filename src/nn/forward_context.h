// One step's input as layers see it: which tokens, where they stand in their sequences, where their
// keys and values live. Built by the runner's input builder, read-only for layers, valid for one
// forward pass. num_tokens rows are the step's sequences one after the other.
//
// Example: a decode at position 9 and a prefill chunk of positions 4..6, block size 4:
//   positions [9, 4, 5, 6], query_start [0, 1, 4], seq_lens [10, 7],
//   block_tables [[8, 3, 5], [2, 7, -1]], slot_mapping [21, 28, 29, 30].
#pragma once

#include <span>

#include "nn/layer_cache.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom {

struct AttentionMetadata {
  Tensor block_tables;  // [num_seqs, max_blocks] int32, unused entries -1
  Tensor query_start;   // [num_seqs + 1] int32, first row of each sequence
  Tensor seq_lens;      // [num_seqs] int32, tokens in the cache after this step
  Tensor settled_lens;  // [num_seqs] int32, tokens whose keys no sequence of this step writes
  Tensor slot_mapping;  // [num_tokens] int32, block_id * block_size + offset
  // The least and the most rows of a sequence; 0 when it is not known.
  int64_t min_queries = 0;
  int64_t max_queries = 0;
};

struct ForwardContext {
  const Stream& stream;
  Workspace& workspace;
  Tensor token_ids;  // [num_tokens] int32
  Tensor positions;  // [num_tokens] int32
  AttentionMetadata attention;
  const LayerStorage& storage;
  // The state slot of each sequence of the step; undefined for a model without states. A sequence
  // has a history, which its slot holds, exactly if seq_lens[i] > query_start[i + 1] -
  // query_start[i]; without one its states begin as zero, whatever the slot holds.
  Tensor state_slots = {};  // [num_seqs] int32

  std::span<const Tensor> cache(CacheHandle handle) const { return storage.cache(handle); }
  std::span<const Tensor> state(StateHandle handle) const { return storage.state(handle); }
  int64_t num_tokens() const { return token_ids.size(0); }
};

}  // namespace atom
