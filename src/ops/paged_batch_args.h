// A PagedBatch as kernels take it, for operators of one row each: no plan is made of the sequences.
#pragma once

#include <stdint.h>

namespace atom::ops {

struct PagedBatchArgs {
  const int32_t* block_tables;
  const int32_t* query_start;
  const int32_t* seq_lens;
  const int32_t* settled_lens;  // or null: nothing is settled
  int64_t block_table_stride;
  int64_t num_sequences;
  int64_t num_tokens;
  int64_t max_blocks;  // of a sequence
  int64_t num_blocks;
  int64_t block_size;
};

// A row of the step among its sequence's tokens.
struct PagedRow {
  const int32_t* block_table;
  int64_t position;  // -1: a row of padding, which sees no key
};

}  // namespace atom::ops
