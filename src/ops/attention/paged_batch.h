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

// Queries of a chunk from which on expanding the keys of latent attention pays, wherever it
// stands: by rates measured on an H200 (absorbed 420, expanded 590, the products that expand about
// 650 TFLOP/s) some 140 do.
inline constexpr int64_t kLongChunk = 256;

// A run of a batch's sequences as a batch of its own: for attention whose kernels for long chunks
// are not those for single queries, so that a step that mixes them is computed part by part.
struct BatchPart {
  int64_t first_sequence = 0;
  int64_t num_sequences = 0;
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t min_queries = 0;
  int64_t max_queries = 0;
  Tensor query_start = {};  // [num_sequences + 1] int32, from 0 on

  Tensor rows_of(const Tensor& tensor) const {  // [num_tokens, ...] -> [num_rows, ...]
    return tensor.defined() ? tensor.narrow(0, first_row, num_rows) : Tensor();
  }
};

// `whole` with the sequences of the part alone.
inline PagedBatch part_of(const PagedBatch& whole, const BatchPart& part) {
  const auto sequences_of = [&](const Tensor& tensor) {
    return tensor.defined() ? tensor.narrow(0, part.first_sequence, part.num_sequences) : Tensor();
  };
  return {.block_tables = sequences_of(whole.block_tables),
          .query_start = part.query_start,
          .seq_lens = sequences_of(whole.seq_lens),
          .settled_lens = sequences_of(whole.settled_lens),
          .slot_mapping = part.rows_of(whole.slot_mapping),
          .min_queries = part.min_queries,
          .max_queries = part.max_queries};
}

}  // namespace atom::ops
