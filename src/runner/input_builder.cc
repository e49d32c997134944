#include "runner/input_builder.h"

#include <algorithm>
#include <utility>

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

// Runs of long chunks and of others; none where all sequences are of one kind.
std::vector<ops::BatchPart> parts_of(const SchedulerOutput& step) {
  std::vector<ops::BatchPart> parts;
  int64_t row = 0;
  for (size_t s = 0; s < step.scheduled.size(); ++s) {
    const int64_t queries = step.scheduled[s].num_new_tokens;
    const bool is_long = queries >= ops::kLongChunk;
    if (parts.empty() || is_long != (parts.back().min_queries >= ops::kLongChunk)) {
      parts.push_back({.first_sequence = static_cast<int64_t>(s),
                       .first_row = row,
                       .min_queries = queries,
                       .max_queries = queries});
    }
    ops::BatchPart& part = parts.back();
    ++part.num_sequences;
    part.num_rows += queries;
    part.min_queries = std::min(part.min_queries, queries);
    part.max_queries = std::max(part.max_queries, queries);
    row += queries;
  }
  if (parts.size() == 1) parts.clear();
  return parts;
}

int64_t starts_size(std::span<const ops::BatchPart> parts) {
  int64_t size = 0;
  for (const ops::BatchPart& part : parts) size += part.num_sequences + 1;
  return size;
}

}  // namespace

InputBuilder::Layout InputBuilder::make_layout(bool has_groups,
                                               int64_t num_tokens,
                                               int64_t num_seqs,
                                               int64_t table_width,
                                               int64_t parts_size) {
  Layout layout{};
  layout.shapes[kTokenIds] = {num_tokens};
  layout.shapes[kPositions] = {num_tokens};
  layout.shapes[kSlotMapping] = {num_tokens};
  layout.shapes[kWindowSlots] = {has_groups ? num_tokens : 0};
  layout.shapes[kTokenStateSlots] = {num_tokens};
  layout.shapes[kQueryStart] = {num_seqs + 1};
  layout.shapes[kSeqLens] = {num_seqs};
  layout.shapes[kSettledLens] = {num_seqs};
  layout.shapes[kStateSlots] = {num_seqs};
  layout.shapes[kPartStarts] = {parts_size};
  layout.shapes[kBlockTables] = {num_seqs, table_width};
  layout.shapes[kWindowTables] = {has_groups ? num_seqs : 0, table_width};
  for (size_t array = 0; array < kNumArrays; ++array) {
    layout.begins[array] = layout.end;
    layout.end += aligned(layout.shapes[array].num_elements());
  }
  return layout;
}

InputBuilder::InputBuilder(const SchedulerConfig& config, const Stream& stream)
    : config_(config),
      has_groups_(config.num_kv_groups > 1),
      max_blocks_(blocks_per_sequence(config)),
      buffer_(stream, num_bytes(config) / int64_t{sizeof(int32_t)}, kMaxDeviceSteps) {}

int64_t InputBuilder::num_bytes(const SchedulerConfig& config) {
  // Padded steps that verify drafts have one sequence more.
  const int32_t num_seqs = config.max_num_seqs + (config.num_speculative_tokens > 0 ? 1 : 0);
  const Layout largest = make_layout(config.num_kv_groups > 1,
                                     config.max_num_batched_tokens,
                                     num_seqs,
                                     blocks_per_sequence(config),
                                     2 * int64_t{num_seqs});
  return largest.end * static_cast<int64_t>(sizeof(int32_t));
}

void InputBuilder::fill_blocks(const SchedulerOutput& step,
                               std::span<RunnerSequence* const> sequences,
                               const Layout& layout,
                               int32_t group) {
  const int64_t table_width = layout.shapes[kBlockTables][1];
  int32_t* slot = buffer_.host() + layout.begins[group == 0 ? kSlotMapping : kWindowSlots];
  int32_t* table = buffer_.host() + layout.begins[group == 0 ? kBlockTables : kWindowTables];
  for (size_t s = 0; s < sequences.size(); ++s, table += table_width) {
    const std::vector<int32_t>& block_ids =
        group == 0 ? sequences[s]->block_ids : sequences[s]->window_block_ids;
    const int32_t begin = step.scheduled[s].num_computed_tokens;
    const int32_t end = begin + step.scheduled[s].num_new_tokens;
    CHECK(end <= std::ssize(block_ids) * config_.block_size);
    for (int32_t position = begin; position < end; ++position) {
      const int32_t block_id = block_ids[position / config_.block_size];
      *slot++ = block_id * config_.block_size + position % config_.block_size;
    }
    const int32_t first = first_column(group, begin);
    std::copy(block_ids.begin() + first, block_ids.end(), table + first);
  }
}

void InputBuilder::fill(const SchedulerOutput& step,
                        std::span<RunnerSequence* const> sequences,
                        const Layout& layout) {
  const auto host = [&](Array array) { return buffer_.host() + layout.begins[array]; };
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
    for (int32_t position = scheduled.num_computed_tokens; position < end; ++position, ++row) {
      host(kTokenIds)[row] = sequence.token_at(position);
      host(kPositions)[row] = position;
      host(kTokenStateSlots)[row] = sequence.state_slots.empty() || position < first_kept
                                        ? -1
                                        : sequence.state_slots[position - first_kept];
    }
    host(kQueryStart)[s + 1] = row;
    host(kSeqLens)[s] = end;
    // What a sequence that starts finds cached another one may be writing in this very step.
    host(kSettledLens)[s] = scheduled.reset_block_table ? 0 : scheduled.num_computed_tokens;
    host(kStateSlots)[s] = sequence.state_slot();
  }
  for (int32_t group = 0; group < config_.num_kv_groups; ++group) {
    fill_blocks(step, sequences, layout, group);
  }
}

void InputBuilder::fill_parts(std::span<ops::BatchPart> parts, const Layout& layout) {
  const int32_t* starts = buffer_.host() + layout.begins[kQueryStart];
  int64_t begin = layout.begins[kPartStarts];
  for (ops::BatchPart& part : parts) {
    const int64_t size = part.num_sequences + 1;
    for (int64_t i = 0; i < size; ++i) {
      buffer_.host()[begin + i] =
          starts[part.first_sequence + i] - static_cast<int32_t>(part.first_row);
    }
    part.query_start = buffer_.view(begin, {size});
    begin += size;
  }
}

StepInputs InputBuilder::views(const Layout& layout,
                               int64_t min_queries,
                               int64_t max_queries) const {
  const auto view = [&](Array array) {
    return buffer_.view(layout.begins[array], layout.shapes[array]);
  };
  const auto batch = [&](Array tables, Array slots) {
    return ops::PagedBatch{.block_tables = view(tables),
                           .query_start = view(kQueryStart),
                           .seq_lens = view(kSeqLens),
                           .settled_lens = view(kSettledLens),
                           .slot_mapping = view(slots),
                           .min_queries = min_queries,
                           .max_queries = max_queries};
  };
  return {
      .token_ids = view(kTokenIds),
      .positions = view(kPositions),
      .batch = batch(kBlockTables, kSlotMapping),
      .window_batch = has_groups_ ? batch(kWindowTables, kWindowSlots) : ops::PagedBatch(),
      .state_slots = view(kStateSlots),
      .token_state_slots = config_.num_speculative_tokens > 0 ? view(kTokenStateSlots) : Tensor()};
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
  std::vector<ops::BatchPart> parts = parts_of(step);
  const Layout layout =
      make_layout(has_groups_, num_tokens, num_seqs, table_width, starts_size(parts));
  CHECK(table_width <= max_blocks_);
  CHECK(layout.end <= buffer_.size());
  buffer_.rotate();
  std::fill(buffer_.host() + layout.begins[kBlockTables], buffer_.host() + layout.end, -1);
  fill(step, sequences, layout);
  fill_parts(parts, layout);
  buffer_.send(0, layout.end);
  StepInputs inputs = views(layout, min_queries, max_queries);
  inputs.parts = std::move(parts);
  return inputs;
}

StepInputs InputBuilder::build_dummy() {
  const Layout layout = make_layout(has_groups_, 1, 1, 1);
  buffer_.rotate();
  const auto host = [&](Array array) { return buffer_.host() + layout.begins[array]; };
  for (const Array array : {kTokenIds, kPositions, kQueryStart, kSettledLens}) *host(array) = 0;
  for (const Array array : {kSlotMapping, kTokenStateSlots, kStateSlots}) *host(array) = -1;
  if (has_groups_) *host(kWindowSlots) = -1;
  host(kQueryStart)[1] = 1;
  // It reads itself, in a place that it does not write: whatever is there.
  *host(kSeqLens) = 1;
  *host(kBlockTables) = 0;
  if (has_groups_) *host(kWindowTables) = 0;
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
    if (has_groups_) host(kWindowSlots)[padding] = -1;
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
  const Layout layout = make_layout(has_groups_, shape.num_tokens(), shape.num_seqs(), max_blocks_);
  CHECK(num_seqs <= shape.batch);
  CHECK(layout.end <= buffer_.size());
  buffer_.rotate();
  fill(step, sequences, layout);
  pad(shape, num_seqs, layout);
  send_tables(step, sequences, layout);
  return views(layout, 1, shape.queries);
}

void InputBuilder::send_tables(const SchedulerOutput& step,
                               std::span<RunnerSequence* const> sequences,
                               const Layout& layout) {
  const auto num_seqs = static_cast<int64_t>(sequences.size());
  // Columns behind a sequence's own blocks, or behind its window, are never read; of few it takes
  // less time to send them too than to begin another copy.
  constexpr int64_t kFewElements = 8192;
  const int64_t tables = layout.begins[kBlockTables];
  const int64_t last = has_groups_ ? layout.begins[kWindowTables] : tables;
  const int64_t end = last + num_seqs * max_blocks_;
  if (end - tables <= kFewElements) return buffer_.send(0, end);
  buffer_.send(0, tables);
  if (num_seqs == 0) return;
  const int64_t width = largest_table(sequences);
  for (int32_t group = 0; group < config_.num_kv_groups; ++group) {
    int32_t first = INT32_MAX;
    for (const ScheduledSequence& scheduled : step.scheduled) {
      first = std::min(first, first_column(group, scheduled.num_computed_tokens));
    }
    const int64_t begin = layout.begins[group == 0 ? kBlockTables : kWindowTables];
    buffer_.send_columns(begin + first, num_seqs, max_blocks_, width - first);
  }
}

}  // namespace atom
