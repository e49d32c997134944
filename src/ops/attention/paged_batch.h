// The sequences of one step and the blocks that hold their keys and values: what every operator
// takes that mixes the tokens of a sequence. The rows of a step are its sequences one after the
// other. Sequence s has rows query_start[s], ..., query_start[s + 1] - 1, at positions
// seq_lens[s] - num_queries, ..., seq_lens[s] - 1.
//
// Example: a decode at position 9 and a prefill chunk of positions 4..6, block size 4:
//   query_start [0, 1, 4], seq_lens [10, 7], block_tables [[8, 3, 5], [2, 7, -1]],
//   slot_mapping [21, 28, 29, 30].
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace atom::ops {

struct PagedBatch {
  Tensor block_tables;  // [num_sequences, max_blocks] int32; -1 where no query sees any key
  Tensor query_start;   // [num_sequences + 1] int32
  Tensor seq_lens;      // [num_sequences] int32: tokens in the cache, this step's included
  // [num_sequences] int32, at most seq_lens, or undefined: a sequence's first tokens that no
  // sequence of this step writes. On a GPU what they left in the cache may be read while the
  // kernels before the reader still run.
  Tensor settled_lens;
  // [num_tokens] int32: block_id * block_size + offset of each row, -1 for a row that is not
  // stored. Undefined where nothing is written.
  Tensor slot_mapping;
  // The least and the most rows of a sequence; 0 when it is not known.
  int64_t min_queries = 0;
  int64_t max_queries = 0;
};

}  // namespace atom::ops
