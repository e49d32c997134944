#include "scheduler/sequence.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace atom {

Sequence::Sequence(SequenceId id,
                   uint64_t arrival,
                   std::vector<int32_t> prompt_token_ids,
                   SamplingParams sampling,
                   std::span<const int32_t> eos_token_ids)
    : num_told_tokens(static_cast<int32_t>(prompt_token_ids.size())),
      id_(id),
      arrival_(arrival),
      num_prompt_tokens_(static_cast<int32_t>(prompt_token_ids.size())),
      sampling_(std::move(sampling)),
      cache_salt_(std::make_shared<const std::string>(sampling_.cache_salt)),
      end_token_ids_(sampling_.stop_token_ids),
      token_ids_(std::move(prompt_token_ids)) {
  CHECK(num_prompt_tokens_ > 0);
  if (!sampling_.ignore_eos) {
    end_token_ids_.insert(end_token_ids_.end(), eos_token_ids.begin(), eos_token_ids.end());
  }
  std::ranges::sort(end_token_ids_);
}

int32_t Sequence::num_schedulable_tokens() const {
  if (num_pending_tokens_ > 0 && sampling_.needs_known_tokens()) return 0;
  const int32_t num_outputs = num_tokens() - num_prompt_tokens_;
  if (sampling_.max_tokens > 0 && num_outputs >= sampling_.max_tokens) return 0;
  return num_tokens() - num_computed_tokens_;
}

void Sequence::start(int32_t num_cached_tokens) {
  CHECK((state_ == SequenceState::kWaiting || state_ == SequenceState::kPreempted));
  CHECK(num_steps_in_flight_ == 0);
  CHECK(num_cached_tokens < num_known_tokens());
  num_computed_tokens_ = num_cached_tokens;
  state_ = SequenceState::kRunning;
}

bool Sequence::advance(int32_t num_new_tokens) {
  CHECK(num_new_tokens > 0);
  CHECK(num_new_tokens <= num_schedulable_tokens());
  num_computed_tokens_ += num_new_tokens;
  ++num_steps_in_flight_;
  const bool samples = sampling_.max_tokens > 0 && num_computed_tokens_ == num_tokens();
  if (samples) ++num_pending_tokens_;
  return samples;
}

void Sequence::preempt() {
  CHECK(state_ == SequenceState::kRunning);
  num_computed_tokens_ = 0;
  num_drafts = 0;
  state_ = SequenceState::kPreempted;
}

void Sequence::complete_step() {
  CHECK(num_steps_in_flight_ > 0);
  --num_steps_in_flight_;
}

void Sequence::append_token(int32_t token_id) {
  CHECK(num_pending_tokens_ > 0);
  --num_pending_tokens_;
  token_ids_.push_back(token_id);
}

void Sequence::append_behind_draft(int32_t token_id) {
  CHECK(num_pending_tokens_ == 0);
  CHECK(num_steps_in_flight_ == 0);
  ++num_computed_tokens_;
  token_ids_.push_back(token_id);
}

FinishReason Sequence::check_finish() const {
  const int32_t num_outputs = num_output_tokens();
  if (num_outputs > sampling_.min_tokens &&
      std::ranges::binary_search(end_token_ids_, token_ids_.back())) {
    return FinishReason::kStop;
  }
  return num_outputs >= sampling_.max_tokens ? FinishReason::kLength : FinishReason::kNone;
}

void Sequence::finish(FinishReason reason) {
  CHECK(state_ != SequenceState::kFinished);
  CHECK(reason != FinishReason::kNone);
  state_ = SequenceState::kFinished;
  finish_reason_ = reason;
}

std::optional<int32_t> Sequence::stop_token_id() const {
  if (finish_reason_ != FinishReason::kStop) return std::nullopt;
  return token_ids_.back();
}

}  // namespace atom
