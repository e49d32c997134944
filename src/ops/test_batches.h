// For tests of operators that mix the tokens of a sequence: batches of sequences.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/attention/paged_batch.h"
#include "ops/state_batch.h"

namespace atom::ops {

inline Tensor int32_tensor(const std::vector<int32_t>& values) {
  const Tensor tensor = Tensor::zeros({static_cast<int64_t>(values.size())}, DType::kInt32);
  std::copy(values.begin(), values.end(), tensor.data<int32_t>());
  return tensor;
}

// Sequences of `new_tokens` after `old_tokens` each, in slots of their own, from the last on.
inline StateBatch state_batch_of(const std::vector<int32_t>& new_tokens,
                                 const std::vector<int32_t>& old_tokens) {
  std::vector<int32_t> starts = {0}, lengths, slots;
  for (size_t s = 0; s < new_tokens.size(); ++s) {
    starts.push_back(starts.back() + new_tokens[s]);
    lengths.push_back(old_tokens[s] + new_tokens[s]);
    slots.push_back(static_cast<int32_t>(new_tokens.size() - s));
  }
  return {int32_tensor(starts), int32_tensor(lengths), int32_tensor(slots)};
}

// The batch's tensors, and the batch with them elsewhere: for run_variant().
inline void append_tensors(const StateBatch& batch, std::vector<Tensor>* tensors) {
  tensors->insert(tensors->end(), {batch.query_start, batch.seq_lens, batch.state_slots});
  if (batch.token_slots.defined()) tensors->push_back(batch.token_slots);
}
template <typename Placed>
StateBatch placed_batch(const StateBatch& batch, const Placed& at) {
  return {at(batch.query_start),
          at(batch.seq_lens),
          at(batch.state_slots),
          batch.token_slots.defined() ? at(batch.token_slots) : Tensor(),
          batch.max_queries};
}

// The same sequences in blocks of their own, the last sequence's first, of which each begins with
// its last. Tables end with -1.
inline PagedBatch paged_batch_of(const std::vector<int32_t>& new_tokens,
                                 const std::vector<int32_t>& old_tokens,
                                 int32_t block_size) {
  const StateBatch sequences = state_batch_of(new_tokens, old_tokens);
  const int64_t num_sequences = static_cast<int64_t>(new_tokens.size());
  const int32_t* lengths = sequences.seq_lens.data<int32_t>();
  const int32_t longest =
      num_sequences == 0 ? 0 : *std::max_element(lengths, lengths + num_sequences);
  const int64_t max_blocks = longest / block_size + 2;
  PagedBatch batch;
  batch.query_start = sequences.query_start;
  batch.seq_lens = sequences.seq_lens;
  batch.block_tables = Tensor::zeros({num_sequences, max_blocks}, DType::kInt32);
  int32_t* table = batch.block_tables.data<int32_t>();
  std::fill_n(table, num_sequences * max_blocks, -1);
  int32_t next = 0;
  for (int64_t s = num_sequences - 1; s >= 0; --s) {
    const int32_t count = (lengths[s] + block_size - 1) / block_size;
    for (int32_t i = 0; i < count; ++i) table[s * max_blocks + i] = next + count - 1 - i;
    next += count;
  }
  return batch;
}

// How many blocks paged_batch_of() gave out.
inline int64_t num_blocks_of(const PagedBatch& batch) {
  const int32_t* table = batch.block_tables.data<int32_t>();
  return *std::max_element(table, table + batch.block_tables.num_elements()) + 1;
}

// The slot of a position.
inline int64_t slot_of(const PagedBatch& batch,
                       int64_t sequence,
                       int64_t position,
                       int64_t block_size) {
  const int64_t entry = sequence * batch.block_tables.size(1) + position / block_size;
  return batch.block_tables.data<int32_t>()[entry] * block_size + position % block_size;
}

}  // namespace atom::ops
