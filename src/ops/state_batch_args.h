// A StateBatch as kernels take it.
#pragma once

#include <stdint.h>

namespace atom::ops {

struct StateBatchArgs {
  const int32_t* query_start;
  const int32_t* seq_lens;
  const int32_t* state_slots;
  const int32_t* token_slots;  // null: the state ends where it began
  int64_t num_sequences;
  int64_t num_tokens;
  int64_t num_slots;
  int64_t max_queries;  // of a sequence; 0: not known
};

}  // namespace atom::ops
