#include "runner/input_builder.h"

#include <algorithm>

namespace atom {
namespace {

int64_t blocks_per_sequence(const SchedulerConfig& config) {
  return (config.max_model_len + config.block_size - 1) / config.block_size;
}

Tensor int32_buffer(int64_t size) {
  return Tensor::empty({size}, DType::kInt32);
}

}  // namespace

InputBuilder::InputBuilder(const SchedulerConfig& config)
    : block_size_(config.block_size),
      max_blocks_(blocks_per_sequence(config)),
      token_ids_(int32_buffer(config.max_num_batched_tokens)),
      positions_(int32_buffer(config.max_num_batched_tokens)),
      slot_mapping_(int32_buffer(config.max_num_batched_tokens)),
      query_start_(int32_buffer(config.max_num_seqs + 1)),
      seq_lens_(int32_buffer(config.max_num_seqs)),
      block_tables_(int32_buffer(config.max_num_seqs * max_blocks_)) {}

int64_t InputBuilder::num_bytes(const SchedulerConfig& config) {
  const int64_t per_sequence = 2 + blocks_per_sequence(config);
  const int64_t elements =
      3 * int64_t{config.max_num_batched_tokens} + config.max_num_seqs * per_sequence + 1;
  return elements * static_cast<int64_t>(sizeof(int32_t));
}

StepInputs InputBuilder::build(const SchedulerOutput& step,
                               std::span<RunnerSequence* const> sequences) {
  const auto num_seqs = static_cast<int64_t>(sequences.size());
  int64_t table_width = 1;
  for (const RunnerSequence* sequence : sequences) {
    table_width = std::max(table_width, static_cast<int64_t>(sequence->block_ids.size()));
  }
  CHECK(table_width <= max_blocks_);

  int32_t* block_tables = block_tables_.data<int32_t>();
  int32_t row = 0;
  query_start_.data<int32_t>()[0] = 0;
  for (int64_t s = 0; s < num_seqs; ++s) {
    const ScheduledSequence& scheduled = step.scheduled[s];
    const RunnerSequence& sequence = *sequences[s];
    const int32_t end = scheduled.num_computed_tokens + scheduled.num_new_tokens;
    CHECK(static_cast<size_t>(end) <= sequence.token_ids.size());
    CHECK(end <= static_cast<int32_t>(sequence.block_ids.size()) * block_size_);
    for (int32_t position = scheduled.num_computed_tokens; position < end; ++position, ++row) {
      token_ids_.data<int32_t>()[row] = sequence.token_ids[position];
      positions_.data<int32_t>()[row] = position;
      slot_mapping_.data<int32_t>()[row] =
          sequence.block_ids[position / block_size_] * block_size_ + position % block_size_;
    }
    query_start_.data<int32_t>()[s + 1] = row;
    seq_lens_.data<int32_t>()[s] = end;
    int32_t* table = block_tables + s * table_width;
    std::copy(sequence.block_ids.begin(), sequence.block_ids.end(), table);
    std::fill(table + sequence.block_ids.size(), table + table_width, -1);
  }
  return {token_ids_.narrow(0, 0, row),
          positions_.narrow(0, 0, row),
          {block_tables_.narrow(0, 0, num_seqs * table_width).view({num_seqs, table_width}),
           query_start_.narrow(0, 0, num_seqs + 1),
           seq_lens_.narrow(0, 0, num_seqs),
           slot_mapping_.narrow(0, 0, row)}};
}

}  // namespace atom
