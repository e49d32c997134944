// One step's input as layers see it: which tokens, where they stand in their sequences, where their
// keys and values live. Built by the runner's input builder, read-only for layers, valid for one
// forward pass. num_tokens rows are the step's sequences one after the other.
//
// Example: a decode at position 9 and a prefill chunk of positions 4..6, block size 4:
//   positions [9, 4, 5, 6], query_start [0, 1, 4], seq_lens [10, 7],
//   block_tables [[8, 3, 5], [2, 7, -1]], slot_mapping [21, 28, 29, 30].
#pragma once

#include <span>

#include "nn/kv_cache.h"
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
  std::span<const KVCacheView> kv_caches;  // one per attention layer

  int64_t num_tokens() const { return token_ids.size(0); }
};

}  // namespace atom
