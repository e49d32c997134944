// What the Scheduler does about drafts: how many are verified, and room for the next ones.
#include <algorithm>
#include <iterator>

#include "scheduler/scheduler.h"

namespace atom {

bool Scheduler::may_draft() const {
  const int32_t most = config_.speculative_disable_by_batch_size;
  return config_.num_speculative_tokens > 0 && (most == 0 || std::ssize(running_) <= most);
}

int32_t Scheduler::num_usable_drafts(const Sequence& sequence) const {
  if (sequence.num_drafts == 0 || !may_draft()) return 0;
  // A step samples one token more than it verifies.
  const int32_t num_left = sequence.sampling().max_tokens - sequence.num_output_tokens();
  return std::max(0,
                  std::min({sequence.num_drafts,
                            num_left - 1,
                            memory_.before_checkpoint(sequence.num_computed_tokens() + 1)}));
}

int32_t Scheduler::num_fitting_drafts(const Sequence& sequence) const {
  int32_t num_drafts = std::min(num_usable_drafts(sequence), step_.draft_budget);
  const int32_t end = sequence.num_computed_tokens() + 1;
  while (num_drafts > 0 && !memory_.can_append(sequence, end + num_drafts)) --num_drafts;
  return num_drafts;
}

void Scheduler::reserve_lookahead(Sequence& sequence, ScheduledSequence& entry) {
  if (config_.num_lookahead_tokens == 0 || !may_draft()) return;
  const int32_t end = entry.num_computed_tokens + entry.num_new_tokens;
  // Nothing is drafted beyond max_tokens, nor for the place of the last token.
  const int32_t most = sequence.num_prompt_tokens() + sequence.sampling().max_tokens - 1;
  const int32_t wanted = std::min(end + config_.num_lookahead_tokens, most);
  if (wanted > end && memory_.can_append(sequence, wanted)) {
    memory_.append(sequence, wanted, entry);
  }
}

}  // namespace atom
