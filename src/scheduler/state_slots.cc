#include "scheduler/state_slots.h"

#include "base/check.h"

namespace atom {

StateSlots::StateSlots(int32_t num_slots) : num_slots_(num_slots) {
  reset();
}

int32_t StateSlots::take() {
  CHECK(num_available() > 0);
  if (!unused_.empty()) {
    const int32_t slot = unused_.back();
    unused_.pop_back();
    return slot;
  }
  const Checkpoint oldest = by_last_use_.front();
  by_last_use_.pop_front();
  checkpoints_.erase(oldest.content);
  return oldest.slot;
}

void StateSlots::release(int32_t slot) {
  CHECK(slot >= 0);
  CHECK(slot < num_slots_);
  CHECK(num_available() < num_slots_);
  unused_.push_back(slot);
}

void StateSlots::keep(int32_t slot, ContentId content) {
  if (has_checkpoint(content)) return release(slot);
  by_last_use_.push_back({content, slot});
  checkpoints_.emplace(content, std::prev(by_last_use_.end()));
}

void StateSlots::drop(ContentId content) {
  const auto found = checkpoints_.find(content);
  if (found == checkpoints_.end()) return;
  unused_.push_back(found->second->slot);
  by_last_use_.erase(found->second);
  checkpoints_.erase(found);
}

int32_t StateSlots::use_checkpoint(ContentId content) {
  const auto found = checkpoints_.find(content);
  CHECK(found != checkpoints_.end());
  by_last_use_.splice(by_last_use_.end(), by_last_use_, found->second);
  return found->second->slot;
}

void StateSlots::reset() {
  checkpoints_.clear();
  by_last_use_.clear();
  unused_.clear();
  for (int32_t slot = num_slots_; slot-- > 0;) unused_.push_back(slot);
}

}  // namespace atom
