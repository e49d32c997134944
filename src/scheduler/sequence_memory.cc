#include "scheduler/sequence_memory.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/check.h"

namespace atom {

SequenceMemory::SequenceMemory(const SchedulerConfig& config)
    : block_size_(config.block_size),
      places_(config),
      num_slots_per_sequence_(config.num_slots_per_sequence()),
      blocks_(config),
      slots_(config.num_state_slots) {}

void SequenceMemory::begin_step() {
  for (const SavedCheckpoint& saved : saved_) {
    slots_.keep(saved.slot, saved.content);
    if (saved.replaced != kRootContent) slots_.drop(saved.replaced);
  }
  saved_.clear();
}

int32_t SequenceMemory::acquire_prefix(Sequence& sequence) {
  if (!has_states()) return blocks_.acquire_prefix(sequence);
  const std::vector<ContentId> contents = blocks_.find_prefix(sequence);
  auto num_blocks = static_cast<int32_t>(contents.size());
  num_blocks = blocks_.num_usable(sequence, contents, num_blocks);
  while (num_blocks > 0 && !slots_.has_checkpoint(contents[num_blocks - 1])) {
    num_blocks = blocks_.num_usable(sequence, contents, num_blocks - 1);
  }
  const int32_t num_covered = blocks_.acquire_prefix(sequence, contents, num_blocks);
  const auto num_cached = static_cast<int32_t>(contents.size()) * block_size_;
  sequence.recurrent.places =
      places_.of_prompt(sequence.num_known_tokens(), num_cached, num_covered);
  return num_covered;
}

bool SequenceMemory::can_start(const Sequence& sequence,
                               int32_t num_tokens,
                               int32_t num_reserved) const {
  if (has_states() && slots_.num_available() < num_slots_per_sequence_) return false;
  return blocks_.can_start(sequence, num_tokens, num_reserved);
}

void SequenceMemory::start(Sequence& sequence, ScheduledSequence& entry, SchedulerOutput& output) {
  entry.reset_block_table = true;
  entry.new_block_ids = sequence.block_table.block_ids;
  if (!has_states()) return;
  const ContentId prefix = sequence.block_table.content;
  const int32_t checkpoint = prefix == kRootContent ? -1 : slots_.use_checkpoint(prefix);
  // When no other slots are left, the sequence goes on in the checkpoint's.
  std::vector<int32_t>& slots = sequence.recurrent.slots;
  for (int32_t i = 0; i < num_slots_per_sequence_; ++i) slots.push_back(slots_.take());
  entry.state_slots = slots;
  if (checkpoint >= 0 && checkpoint != slots[0]) {
    output.state_restores.push_back({.from = checkpoint, .to = slots[0]});
  }
}

int32_t SequenceMemory::up_to_checkpoint(const Sequence& sequence, int32_t num_tokens) const {
  if (slots_.num_available() == 0) return num_tokens;
  const int32_t num_computed = sequence.num_computed_tokens();
  const int32_t next = places_.next_in_prompt(sequence.recurrent.places, num_computed);
  return std::min(num_tokens, next - num_computed);
}

int32_t SequenceMemory::before_checkpoint(int32_t num_computed) const {
  const int32_t next = places_.next_in_answer(num_computed - 1);
  return next == INT32_MAX ? next : std::max(0, next - num_computed - 1);
}

// A sequence's checkpoints on the way are worth keeping where those of all that run fit.
bool SequenceMemory::has_room_for_passing() const {
  const int32_t num_taken = slots_.num_slots() - slots_.num_available();
  return slots_.num_available() >= num_taken / num_slots_per_sequence_;
}

void SequenceMemory::save_checkpoint(Sequence& sequence,
                                     const ScheduledSequence& entry,
                                     SchedulerOutput& output) {
  if (slots_.num_available() == 0) return;
  const int32_t num_tokens = sequence.num_computed_tokens();
  const bool in_answer = entry.is_decode();
  const int32_t next = in_answer
                           ? places_.next_in_answer(num_tokens - 1)
                           : places_.next_in_prompt(sequence.recurrent.places, num_tokens - 1);
  if (next != num_tokens) return;
  const bool is_passing = in_answer && places_.is_passing(num_tokens);
  if (is_passing && !has_room_for_passing()) return;
  const int32_t slot = slots_.take();
  output.state_saves.push_back({.from = sequence.recurrent.slots[0], .to = slot});
  sequence.recurrent.checkpoints.push_back(
      {.slot = slot, .num_tokens = num_tokens, .is_passing = is_passing});
}

void SequenceMemory::register_known(Sequence& sequence) {
  blocks_.register_blocks(sequence,
                          std::min(sequence.num_computed_tokens(), sequence.num_known_tokens()));
  std::vector<PendingCheckpoint>& checkpoints = sequence.recurrent.checkpoints;
  const int32_t num_registered = sequence.block_table.num_registered * block_size_;
  while (!checkpoints.empty() && checkpoints.front().num_tokens <= num_registered) {
    // Tokens become known one by one, so no block behind the checkpoint is registered yet.
    CHECK(checkpoints.front().num_tokens == num_registered);
    const PendingCheckpoint& saved = checkpoints.front();
    const ContentId content = sequence.block_table.content;
    saved_.push_back(
        {saved.slot, content, std::exchange(sequence.recurrent.passing, kRootContent)});
    if (saved.is_passing) sequence.recurrent.passing = content;
    checkpoints.erase(checkpoints.begin());
  }
}

void SequenceMemory::free(Sequence& sequence) {
  blocks_.free(sequence);
  for (const PendingCheckpoint& pending : sequence.recurrent.checkpoints)
    slots_.release(pending.slot);
  for (const int32_t slot : sequence.recurrent.slots) slots_.release(slot);
  sequence.recurrent = {};
}

void SequenceMemory::reset() {
  blocks_.reset();
  slots_.reset();
  saved_.clear();
}

}  // namespace atom
