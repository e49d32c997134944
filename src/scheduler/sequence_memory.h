// What a sequence holds on the device while it runs: KV blocks, and for a model with recurrent
// states a state slot, and one more for each draft that a step may verify: such a step leaves the
// state behind each of its tokens. Admission, growth and freeing go through here, so that a
// sequence has all it needs or nothing.
//
// A prefix that is found cached saves its computation only where everything is there: the blocks,
// and for a model with states a checkpoint behind the last of them. Where checkpoints are saved is
// the business of CheckpointPlaces: the step that computes up to there ends with a copy of the
// sequence's slot into another one. It is known under the content of the last block, once all
// tokens of that are known, from the step after on; so whoever starts from it restores what an
// earlier step saved.
//
// Layers with a window give back the blocks behind it before a step is made, see
// BlockManager.
//
// Copies within a step: first the restores in their order, then all sequences compute, then the
// saves. A slot may therefore be restored from and handed over in one step.
//
// Owned by the thread that runs the Scheduler.
#pragma once

#include <cstdint>
#include <vector>

#include "config/scheduler_config.h"
#include "scheduler/block_manager.h"
#include "scheduler/checkpoint_places.h"
#include "scheduler/scheduler_output.h"
#include "scheduler/sequence.h"
#include "scheduler/state_slots.h"

namespace atom {

class SequenceMemory {
 public:
  explicit SequenceMemory(const SchedulerConfig& config);

  // A step begins: the checkpoints of earlier ones can be used.
  void begin_step();

  // Gives a sequence that holds nothing the blocks of the longest cached prefix from which it can
  // go on. Returns the tokens covered, never the last known one.
  int32_t acquire_prefix(Sequence& sequence);

  // Whether a sequence, which may have acquired a prefix, can start and grow to `num_tokens` while
  // room for `num_reserved` blocks of tokens stays free.
  bool can_start(const Sequence& sequence, int32_t num_tokens, int32_t num_reserved) const;
  // Gives it what it needs besides blocks, and the runner its table so far.
  void start(Sequence& sequence, ScheduledSequence& entry, SchedulerOutput& output);

  bool can_append(const Sequence& sequence, int32_t num_tokens) const {
    return blocks_.can_append(sequence, num_tokens);
  }
  // Grows the block table to hold `num_tokens`.
  void append(Sequence& sequence, int32_t num_tokens, ScheduledSequence& entry) {
    blocks_.append(sequence, num_tokens, entry.new_block_ids);
  }

  // How many of the next `num_tokens` of a prefill a step computes, so that it ends where a
  // checkpoint is to be saved.
  int32_t up_to_checkpoint(const Sequence& sequence, int32_t num_tokens) const;
  // How many drafts a step may verify that has computed `num_computed` tokens with certainty: the
  // state where a checkpoint belongs is one that a step without drafts leaves.
  int32_t before_checkpoint(int32_t num_computed) const;
  // Orders a checkpoint where the tokens that `entry` schedules end, if one belongs there and there
  // is a slot.
  void save_checkpoint(Sequence& sequence, const ScheduledSequence& entry, SchedulerOutput& output);

  // Gives back what the sequence will not read any more. Between steps.
  void free_behind_window(Sequence& sequence) { blocks_.free_behind_window(sequence); }

  // Registers what is both scheduled and known in the prefix cache.
  void register_known(Sequence& sequence);

  // Drops all that the sequence holds.
  void free(Sequence& sequence);
  // Frees everything and forgets every content. No sequence may use what it held afterwards.
  void reset();

  BlockManager& blocks() { return blocks_; }
  const BlockManager& blocks() const { return blocks_; }
  const StateSlots& slots() const { return slots_; }
  // Slots of checkpoints that cannot be used before the next step.
  size_t num_saved() const { return saved_.size(); }
  // How often something was freed: while it stays, what could not start cannot.
  uint64_t num_releases() const { return blocks_.num_releases(); }

 private:
  struct SavedCheckpoint {
    int32_t slot = 0;
    ContentId content = kRootContent;
    ContentId replaced = kRootContent;  // whose checkpoint goes then
  };

  bool has_states() const { return slots_.num_slots() > 0; }
  bool has_room_for_passing() const;

  const int32_t block_size_;
  const CheckpointPlaces places_;
  const int32_t num_slots_per_sequence_;
  BlockManager blocks_;
  StateSlots slots_;
  std::vector<SavedCheckpoint> saved_;  // of known content, not to be used before the next step
};

}  // namespace atom
