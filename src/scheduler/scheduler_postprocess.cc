// What the answer to a step makes of its sequences.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace atom {

std::vector<SequenceUpdate> Scheduler::postprocess(const SchedulerOutput& output,
                                                   ModelRunnerOutput answer) {
  CHECK(num_steps_in_flight_ > 0);
  CHECK(output.step == next_step_ - num_steps_in_flight_);
  CHECK(answer.step == output.step);
  CHECK(answer.sequences.size() == output.scheduled.size());
  --num_steps_in_flight_;
  const std::vector<Sequence*>& sequences = in_flight_[output.step % in_flight_.size()];
  CHECK(sequences.size() == output.scheduled.size());

  std::vector<SequenceUpdate> updates;
  updates.reserve(sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = *sequences[i];
    CHECK(answer.sequences[i].id == sequence.id());
    sequence.complete_step();
    if (sequence.state() == SequenceState::kFinished) {
      erase_if_done(sequence);
    } else {
      apply(sequence, output.scheduled[i], std::move(answer.sequences[i]), updates);
    }
  }
  return updates;
}

void Scheduler::apply(Sequence& sequence,
                      const ScheduledSequence& scheduled,
                      SequenceOutput answer,
                      std::vector<SequenceUpdate>& updates) {
  const bool failed = !answer.error.empty();
  CHECK(answer.token_ids.size() <= static_cast<size_t>(failed ? 0 : scheduled.num_sampled));
  CHECK(answer.token_ids.empty() == (failed || !scheduled.samples()));
  const int32_t end_token = scheduled.num_computed_tokens + scheduled.num_new_tokens;
  FinishReason reason = FinishReason::kNone;
  if (failed) {
    reason = FinishReason::kError;
  } else if (scheduled.samples()) {
    reason = take_tokens(sequence, scheduled, answer);
    sequence.rests_until = next_step_ + answer.num_steps_to_rest;
    if (sequence.state() == SequenceState::kRunning) memory_.register_known(sequence);
  } else if (sequence.sampling().max_tokens == 0 && end_token == sequence.num_prompt_tokens()) {
    reason = FinishReason::kLength;
  }

  // Recomputed prompt tokens come again; the first answer for each was passed on.
  std::vector<TokenLogprobs>& scores = answer.prompt_logprobs;
  const auto num_scored = scheduled.num_computed_tokens + static_cast<int32_t>(scores.size());
  const int32_t num_repeated =
      std::min(std::max(0, sequence.num_scored_prompt_tokens - scheduled.num_computed_tokens),
               static_cast<int32_t>(scores.size()));
  scores.erase(scores.begin(), scores.begin() + num_repeated);
  if (!scores.empty()) sequence.num_scored_prompt_tokens = num_scored;

  if (answer.token_ids.empty() && scores.empty() && reason == FinishReason::kNone) return;
  if (reason != FinishReason::kNone) end(sequence, reason);
  updates.push_back({.id = sequence.id(),
                     .token_ids = std::move(answer.token_ids),
                     .logprobs = std::move(answer.logprobs),
                     .prompt_logprobs = std::move(scores),
                     .finish_reason = reason,
                     .stop_token_id = sequence.stop_token_id(),
                     .error = std::move(answer.error),
                     .num_cached_prompt_tokens = sequence.num_cached_prompt_tokens});
  // `end` queued its id, so the sequence outlives this.
}

FinishReason Scheduler::take_tokens(Sequence& sequence,
                                    const ScheduledSequence& scheduled,
                                    SequenceOutput& answer) {
  std::vector<int32_t>& tokens = answer.token_ids;
  if (scheduled.num_drafts() > 0) {
    count_verification(scheduled.num_drafts(), static_cast<int32_t>(tokens.size()) - 1);
  }
  CHECK(answer.num_drafts <= config_.num_speculative_tokens);
  sequence.num_drafts = answer.num_drafts;
  if (config_.num_stages > 1) {
    CHECK(std::ssize(answer.draft_ids) == answer.num_drafts);
    sequence.draft_ids = std::move(answer.draft_ids);
  }
  sequence.append_token(tokens[0]);
  FinishReason reason = sequence.check_finish();
  size_t num_taken = 1;
  for (; num_taken < tokens.size() && reason == FinishReason::kNone; ++num_taken) {
    sequence.append_behind_draft(tokens[num_taken]);
    reason = sequence.check_finish();
  }
  tokens.resize(num_taken);
  if (!answer.logprobs.empty()) answer.logprobs.resize(num_taken);
  return reason;
}

void Scheduler::count_verification(int32_t num_drafts, int32_t num_accepted) {
  ++counted_.num_verifications;
  counted_.num_draft_tokens += num_drafts;
  counted_.num_accepted_tokens += num_accepted;
  for (int32_t i = 0; i < num_accepted; ++i) ++counted_.num_accepted_at[i];
}

void Scheduler::end(Sequence& sequence, FinishReason reason) {
  if (sequence.state() == SequenceState::kRunning) {
    running_.erase(std::ranges::lower_bound(running_, &sequence, waiting_.key_comp()));
    memory_.free(sequence);
  } else {
    waiting_.erase(&sequence);
  }
  if (obstacle_.sequence == &sequence) obstacle_ = {};
  sequence.finish(reason);
  if (sequence.known_to_runner) finished_ids_.push_back(sequence.id());
}

void Scheduler::erase_if_done(Sequence& sequence) {
  if (sequence.num_steps_in_flight() > 0 || sequence.known_to_runner) return;
  sequences_.erase(sequence.id());
}

}  // namespace atom
