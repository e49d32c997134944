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
  layout.shapes[kTokenIds] = {num_tokens};
  layout.shapes[kPositions] = {num_tokens};
  layout.shapes[kSlotMapping] = {num_tokens};
  layout.shapes[kTokenStateSlots] = {num_tokens};
  layout.shapes[kQueryStart] = {num_seqs + 1};
  layout.shapes[kSeqLens] = {num_seqs};
  layout.shapes[kSettledLens] = {num_seqs};
  layout.shapes[kStateSlots] = {num_seqs};
  layout.shapes[kBlockTables] = {num_seqs, table_width};
  for (size_t array = 0; array < kNumArrays; ++array) {
    layout.begins[array] = layout.end;
    layout.end += aligned(layout.shapes[array].num_elements());
  }
  return layout;
}

InputBuilder::InputBuilder(const SchedulerConfig& config, const Stream& stream)
    : block_size_(config.block_size),
      verifies_drafts_(config.num_speculative_tokens > 0),
      max_blocks_(blocks_per_sequence(config)),
      buffer_(stream, num_bytes(config) / int64_t{sizeof(int32_t)}, kMaxDeviceSteps) {}

int64_t InputBuilder::num_bytes(const SchedulerConfig& config) {
  // Padded steps that verify drafts have one sequence more.
  const int32_t num_seqs = config.max_num_seqs + (config.num_speculative_tokens > 0 ? 1 : 0);
  const Layout largest =
      make_layout(config.max_num_batched_tokens, num_seqs, blocks_per_sequence(config));
  return largest.end * static_cast<int64_t>(sizeof(int32_t));
}

void InputBuilder::fill(const SchedulerOutput& step,
                        std::span<RunnerSequence* const> sequences,
                        const Layout& layout) {
  const auto host = [&](Array array) { return buffer_.host() + layout.begins[array]; };
  const int64_t table_width = layout.shapes[kBlockTables][1];
  int32_t row = 0;
  host(kQueryStart)[0] = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const ScheduledSequence& scheduled = step.scheduled[s];
    const RunnerSequence& sequence = *sequences[s];
    const int32_t end = scheduled.num_computed_tokens + scheduled.num_new_tokens;
    CHECK(static_cast<size_t>(end) <= sequence.token_ids.size() + scheduled.num_drafts());
    CHECK(static_cast<size_t>(scheduled.num_drafts()) <= sequence.drafts.size());
    // Behind the last token that is certain, and behind each draft, there is a state to go on with.
    const int32_t first_kept = end - 1 - scheduled.num_drafts();
    CHECK(end <= static_cast<int32_t>(sequence.block_ids.size()) * block_size_);
    for (int32_t position = scheduled.num_computed_tokens; position < end; ++position, ++row) {
      host(kTokenIds)[row] = sequence.token_at(position);
      host(kPositions)[row] = position;
      host(kSlotMapping)[row] =
          sequence.block_ids[position / block_size_] * block_size_ + position % block_size_;
      host(kTokenStateSlots)[row] = sequence.state_slots.empty() || position < first_kept
                                        ? -1
                                        : sequence.state_slots[position - first_kept];
    }
    host(kQueryStart)[s + 1] = row;
    host(kSeqLens)[s] = end;
    // What a sequence that starts finds cached another one may be writing in this very step.
    host(kSettledLens)[s] = scheduled.reset_block_table ? 0 : scheduled.num_computed_tokens;
    host(kStateSlots)[s] = sequence.state_slot();
    std::copy(sequence.block_ids.begin(),
              sequence.block_ids.end(),
              host(kBlockTables) + static_cast<int64_t>(s) * table_width);
  }
}

StepInputs InputBuilder::views(const Layout& layout,
                               int64_t min_queries,
                               int64_t max_queries) const {
  const auto view = [&](Array array) {
    return buffer_.view(layout.begins[array], layout.shapes[array]);
  };
  return {.token_ids = view(kTokenIds),
          .positions = view(kPositions),
          .batch = {.block_tables = view(kBlockTables),
                    .query_start = view(kQueryStart),
                    .seq_lens = view(kSeqLens),
                    .settled_lens = view(kSettledLens),
                    .slot_mapping = view(kSlotMapping),
                    .min_queries = min_queries,
                    .max_queries = max_queries},
          .state_slots = view(kStateSlots),
          .token_state_slots = verifies_drafts_ ? view(kTokenStateSlots) : Tensor()};
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
  const int64_t table_width = largest_table(sequences);
  const auto num_seqs = static_cast<int64_t>(sequences.size());
  const Layout layout = make_layout(num_tokens, num_seqs, table_width);
  CHECK(table_width <= max_blocks_);
  CHECK(layout.end <= buffer_.size());
  buffer_.rotate();
  std::fill_n(buffer_.host() + layout.begins[kBlockTables], num_seqs * table_width, -1);
  fill(step, sequences, layout);
  buffer_.send(0, layout.end);
  return views(layout, min_queries, max_queries);
}

StepInputs InputBuilder::build_dummy() {
  const Layout layout = make_layout(1, 1, 1);
  buffer_.rotate();
  const auto host = [&](Array array) { return buffer_.host() + layout.begins[array]; };
  for (const Array array : {kTokenIds, kPositions, kQueryStart, kSettledLens}) *host(array) = 0;
  for (const Array array : {kSlotMapping, kTokenStateSlots, kStateSlots}) *host(array) = -1;
  host(kQueryStart)[1] = 1;
  // It reads itself, in a place that it does not write: whatever is there.
  *host(kSeqLens) = 1;
  *host(kBlockTables) = 0;
  buffer_.send(0, layout.end);
  return views(layout, 1, 1);
}

void InputBuilder::pad(const DecodeShape& shape, int64_t num_seqs, const Layout& layout) {
  const auto host = [&](Array array) { return buffer_.host() + layout.begins[array]; };
  const auto num_tokens = static_cast<int32_t>(shape.num_tokens());
  int32_t row = host(kQueryStart)[num_seqs];
  CHECK(row <= num_tokens);
  for (int32_t padding = row; padding < num_tokens; ++padding) {
    host(kTokenIds)[padding] = 0;
    host(kPositions)[padding] = 0;
    host(kSlotMapping)[padding] = -1;
    host(kTokenStateSlots)[padding] = -1;
  }
  for (int64_t s = num_seqs; s < shape.num_seqs(); ++s) {
    row = s + 1 == shape.num_seqs() ? num_tokens : row + 1;
    host(kQueryStart)[s + 1] = row;
    host(kSeqLens)[s] = 0;
    host(kSettledLens)[s] = 0;
    host(kStateSlots)[s] = -1;
  }
}

StepInputs InputBuilder::build_decodes(const SchedulerOutput& step,
                                       std::span<RunnerSequence* const> sequences,
                                       const DecodeShape& shape) {
  const auto num_seqs = static_cast<int64_t>(sequences.size());
  const Layout layout = make_layout(shape.num_tokens(), shape.num_seqs(), max_blocks_);
  CHECK(num_seqs <= shape.batch);
  CHECK(layout.end <= buffer_.size());
  buffer_.rotate();
  fill(step, sequences, layout);
  pad(shape, num_seqs, layout);
  // Columns behind a sequence's own blocks are never read; of few it takes less time to send them
  // too than to begin another copy.
  constexpr int64_t kFewElements = 8192;
  const int64_t tables = layout.begins[kBlockTables];
  if (num_seqs * max_blocks_ <= kFewElements) {
    buffer_.send(0, tables + num_seqs * max_blocks_);
  } else {
    buffer_.send(0, tables);
    buffer_.send_columns(tables, num_seqs, max_blocks_, largest_table(sequences));
  }
  return views(layout, 1, shape.queries);
}

}  // namespace atom
