#include "runner/input_builder.h"

#include <algorithm>

namespace atom {
namespace {

// Tensors begin at multiples of this, in elements: 64 bytes.
constexpr int64_t kAlignment = 16;

int64_t aligned(int64_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t blocks_per_sequence(const SchedulerConfig& config) {
  return num_blocks_for(config.max_model_len, config.block_size);
}

int64_t largest_table(std::span<RunnerSequence* const> sequences) {
  size_t width = 1;
  for (const RunnerSequence* sequence : sequences) {
    width = std::max(width, sequence->block_ids.size());
  }
  return static_cast<int64_t>(width);
}

}  // namespace

InputBuilder::Layout InputBuilder::make_layout(int64_t num_tokens,
                                               int64_t num_seqs,
                                               int64_t table_width) {
  Layout layout{};
  layout.num_tokens = num_tokens;
  layout.num_seqs = num_seqs;
  layout.table_width = table_width;
  layout.token_ids = 0;
  layout.positions = layout.token_ids + aligned(num_tokens);
  layout.slot_mapping = layout.positions + aligned(num_tokens);
  layout.query_start = layout.slot_mapping + aligned(num_tokens);
  layout.seq_lens = layout.query_start + aligned(num_seqs + 1);
  layout.settled_lens = layout.seq_lens + aligned(num_seqs);
  layout.block_tables = layout.settled_lens + aligned(num_seqs);
  layout.end = layout.block_tables + aligned(num_seqs * table_width);
  return layout;
}

InputBuilder::InputBuilder(const SchedulerConfig& config, const Stream& stream)
    : block_size_(config.block_size),
      max_blocks_(blocks_per_sequence(config)),
      buffer_(stream, num_bytes(config) / int64_t{sizeof(int32_t)}, kMaxDeviceSteps) {}

int64_t InputBuilder::num_bytes(const SchedulerConfig& config) {
  const Layout largest =
      make_layout(config.max_num_batched_tokens, config.max_num_seqs, blocks_per_sequence(config));
  return largest.end * static_cast<int64_t>(sizeof(int32_t));
}

void InputBuilder::fill(const SchedulerOutput& step,
                        std::span<RunnerSequence* const> sequences,
                        const Layout& layout) {
  int32_t* data = buffer_.host();
  int32_t* query_start = data + layout.query_start;
  int32_t row = 0;
  query_start[0] = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const ScheduledSequence& scheduled = step.scheduled[s];
    const RunnerSequence& sequence = *sequences[s];
    const int32_t end = scheduled.num_computed_tokens + scheduled.num_new_tokens;
    CHECK(static_cast<size_t>(end) <= sequence.token_ids.size());
    CHECK(end <= static_cast<int32_t>(sequence.block_ids.size()) * block_size_);
    for (int32_t position = scheduled.num_computed_tokens; position < end; ++position, ++row) {
      data[layout.token_ids + row] = sequence.token_ids[position];
      data[layout.positions + row] = position;
      data[layout.slot_mapping + row] =
          sequence.block_ids[position / block_size_] * block_size_ + position % block_size_;
    }
    query_start[s + 1] = row;
    data[layout.seq_lens + s] = end;
    // What a sequence that starts finds cached another one may be writing in this very step.
    data[layout.settled_lens + s] = scheduled.reset_block_table ? 0 : scheduled.num_computed_tokens;
    int32_t* table = data + layout.block_tables + s * layout.table_width;
    std::copy(sequence.block_ids.begin(), sequence.block_ids.end(), table);
  }
}

StepInputs InputBuilder::views(const Layout& layout) const {
  const Shape tokens = {layout.num_tokens};
  return {buffer_.view(layout.token_ids, tokens),
          buffer_.view(layout.positions, tokens),
          {buffer_.view(layout.block_tables, {layout.num_seqs, layout.table_width}),
           buffer_.view(layout.query_start, {layout.num_seqs + 1}),
           buffer_.view(layout.seq_lens, {layout.num_seqs}),
           buffer_.view(layout.settled_lens, {layout.num_seqs}),
           buffer_.view(layout.slot_mapping, tokens),
           layout.min_queries,
           layout.max_queries}};
}

StepInputs InputBuilder::build(const SchedulerOutput& step,
                               std::span<RunnerSequence* const> sequences) {
  int64_t num_tokens = 0;
  int64_t min_queries = INT64_MAX, max_queries = 0;
  for (const ScheduledSequence& scheduled : step.scheduled) {
    num_tokens += scheduled.num_new_tokens;
    min_queries = std::min<int64_t>(min_queries, scheduled.num_new_tokens);
    max_queries = std::max<int64_t>(max_queries, scheduled.num_new_tokens);
  }
  Layout layout =
      make_layout(num_tokens, static_cast<int64_t>(sequences.size()), largest_table(sequences));
  layout.min_queries = min_queries;
  layout.max_queries = max_queries;
  CHECK(layout.table_width <= max_blocks_);
  CHECK(layout.end <= buffer_.size());
  buffer_.rotate();
  std::fill_n(buffer_.host() + layout.block_tables, layout.num_seqs * layout.table_width, -1);
  fill(step, sequences, layout);
  buffer_.send(0, layout.end);
  return views(layout);
}

StepInputs InputBuilder::build_decodes(const SchedulerOutput& step,
                                       std::span<RunnerSequence* const> sequences,
                                       int64_t batch) {
  const auto num_seqs = static_cast<int64_t>(sequences.size());
  Layout layout = make_layout(batch, batch, max_blocks_);
  layout.min_queries = 1;
  layout.max_queries = 1;
  CHECK(num_seqs <= batch);
  CHECK(layout.end <= buffer_.size());
  buffer_.rotate();
  fill(step, sequences, layout);
  int32_t* data = buffer_.host();
  for (int64_t row = num_seqs; row < batch; ++row) {
    data[layout.token_ids + row] = 0;
    data[layout.positions + row] = 0;
    data[layout.slot_mapping + row] = -1;
    data[layout.query_start + row + 1] = static_cast<int32_t>(row) + 1;
    data[layout.seq_lens + row] = 0;
    data[layout.settled_lens + row] = 0;
  }
  // Columns behind a sequence's own blocks are never read; of few it takes less time to send them
  // too than to begin another copy.
  constexpr int64_t kFewElements = 8192;
  if (num_seqs * max_blocks_ <= kFewElements) {
    buffer_.send(0, layout.block_tables + num_seqs * max_blocks_);
  } else {
    buffer_.send(0, layout.block_tables);
    buffer_.send_columns(layout.block_tables, num_seqs, max_blocks_, largest_table(sequences));
  }
  return views(layout);
}

}  // namespace atom
