// A run of a batch's sequences as a batch of its own: for attention whose kernels for long chunks
// are not those for single queries, so that a step that mixes them is computed part by part.
#pragma once

#include <cstdint>

#include "ops/attention/paged_batch.h"
#include "tensor/tensor.h"

namespace atom::ops {

// Queries of a chunk from which on expanding the keys of latent attention pays, wherever it
// stands: by rates measured on an H200 (absorbed 420, expanded 590, the products that expand about
// 650 TFLOP/s) some 140 do.
inline constexpr int64_t kLongChunk = 256;

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
