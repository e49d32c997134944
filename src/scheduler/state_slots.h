// The pool of state slots: each holds the recurrent states of one sequence, of all layers. A slot
// is unused, taken by a running sequence, or keeps a checkpoint: the states behind the last token
// of a content of the prefix cache. Slot ids are [0, num_slots).
//
// A checkpoint keeps its slot only until someone needs it, the least recently used first. It is
// known by the id of the content, which is never given twice: a checkpoint of a content that the
// prefix cache has forgotten is found no more and goes in its turn.
//
// Handing a slot over at once is sound because the device executes steps in the order in which they
// were scheduled: whoever gets the slot writes it in a later step, or later in the same.
//
// Owned by the thread that runs the Scheduler.
#pragma once

#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

#include "scheduler/prefix_cache.h"

namespace atom {

class StateSlots {
 public:
  explicit StateSlots(int32_t num_slots);

  // Takes an unused slot, or else that of a checkpoint. Needs num_available() > 0.
  int32_t take();
  // A taken slot is unused again.
  void release(int32_t slot);
  // A taken slot keeps the checkpoint of `content`; it is unused again when another does so.
  void keep(int32_t slot, ContentId content);
  // The slot of a checkpoint of `content`, if there is one, is unused again.
  void drop(ContentId content);

  bool has_checkpoint(ContentId content) const { return checkpoints_.contains(content); }
  // The slot of a checkpoint that is there, which becomes the most recently used.
  int32_t use_checkpoint(ContentId content);

  // Makes every slot unused.
  void reset();

  int32_t num_slots() const { return num_slots_; }
  // Slots that no sequence has.
  int32_t num_available() const {
    return static_cast<int32_t>(unused_.size() + by_last_use_.size());
  }
  int32_t num_checkpoints() const { return static_cast<int32_t>(by_last_use_.size()); }

 private:
  struct Checkpoint {
    ContentId content = kRootContent;
    int32_t slot = 0;
  };

  const int32_t num_slots_;
  std::vector<int32_t> unused_;
  std::list<Checkpoint> by_last_use_;  // oldest first
  std::unordered_map<ContentId, std::list<Checkpoint>::iterator> checkpoints_;
};

}  // namespace atom
