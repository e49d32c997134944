#include "scheduler/scheduler.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "config/context_length.h"

namespace atom {

namespace {

const SchedulerConfig& checked(const SchedulerConfig& config) {
  CHECK(config.num_blocks > 0);
  CHECK(config.block_size > 0);
  CHECK(config.max_num_seqs > 0);
  CHECK(config.max_num_batched_tokens > 0);
  CHECK(config.max_steps_in_flight > 0);
  CHECK(config.num_state_slots >= 0);
  CHECK(config.num_speculative_tokens >= 0);
  CHECK(config.num_speculative_tokens <= kMaxSpeculativeTokens);
  CHECK(config.num_stages > 0);
  // How far a step with drafts gets is not known before it is done.
  if (config.num_speculative_tokens > 0) {
    CHECK((config.max_steps_in_flight == 1 || config.num_stages > 1));
  }
  return config;
}

}  // namespace

bool Scheduler::RanksHigher::operator()(const Sequence* a, const Sequence* b) const {
  if (by_priority && a->sampling().priority != b->sampling().priority) {
    return a->sampling().priority < b->sampling().priority;
  }
  return a->arrival() < b->arrival();
}

Scheduler::Scheduler(const SchedulerConfig& config, std::vector<int32_t> eos_token_ids)
    : config_(checked(config)),
      eos_token_ids_(std::move(eos_token_ids)),
      splits_prefills_(config.enable_chunked_prefill &&
                       config.policy != SchedulingPolicy::kPrefillFirst),
      memory_(config),
      waiting_(RanksHigher{config.policy == SchedulingPolicy::kPriority}),
      in_flight_(config.max_steps_in_flight) {}

Status Scheduler::check_request(const std::vector<int32_t>& prompt_token_ids,
                                const SamplingParams& sampling) const {
  const auto num_prompt = static_cast<int64_t>(prompt_token_ids.size());
  if (num_prompt == 0) return invalid_argument("the prompt is empty; it needs at least one token");
  RETURN_IF_ERROR(check_context_length(num_prompt, sampling.max_tokens, config_.max_model_len));
  if (!splits_prefills_ && num_prompt > config_.max_num_batched_tokens) {
    return invalid_argument(
        "the prompt has {} tokens, but a step takes {} and prefills are not split: shorten the "
        "prompt, raise max_num_batched_tokens or use chunked prefill",
        num_prompt,
        config_.max_num_batched_tokens);
  }
  // The last token generated is never fed back, so it has no KV.
  const int64_t num_outputs =
      std::min<int64_t>(sampling.max_tokens, config_.max_model_len - num_prompt);
  const int64_t num_cached = num_prompt + std::max<int64_t>(num_outputs - 1, 0);
  const int64_t num_blocks = config_.max_blocks_of_sequence(num_cached);
  if (num_blocks > config_.num_blocks) {
    return invalid_argument(
        "the prompt of {} tokens and an answer of up to {} need {} KV blocks of {} tokens, but the "
        "pool has {}: ask for fewer tokens or enlarge the KV cache",
        num_prompt,
        num_outputs,
        num_blocks,
        config_.block_size,
        config_.num_blocks);
  }
  return {};
}

Status Scheduler::add(SequenceId id,
                      std::vector<int32_t> prompt_token_ids,
                      SamplingParams sampling,
                      std::shared_ptr<const CompiledGrammar> grammar) {
  RETURN_IF_ERROR(check_request(prompt_token_ids, sampling));
  if (sequences_.contains(id)) {
    return invalid_argument("request id {} is in use; ids of live requests are distinct", id);
  }
  // Those that could run count as running, even before the next step is scheduled.
  const size_t num_unfinished = waiting_.size() + running_.size();
  if (static_cast<int64_t>(num_unfinished) >=
      int64_t{config_.max_num_seqs} + config_.max_num_waiting) {
    return resource_exhausted("{} requests run or wait, the limits are {} and {}: try again later",
                              num_unfinished,
                              config_.max_num_seqs,
                              config_.max_num_waiting);
  }
  const auto num_prompt = static_cast<int32_t>(prompt_token_ids.size());
  sampling.max_tokens = std::min(sampling.max_tokens, config_.max_model_len - num_prompt);
  auto sequence = std::make_unique<Sequence>(
      id, next_arrival_++, std::move(prompt_token_ids), std::move(sampling), eos_token_ids_);
  sequence->grammar = std::move(grammar);
  waiting_.insert(sequence.get());
  sequences_.emplace(id, std::move(sequence));
  return {};
}

bool Scheduler::abort(SequenceId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return false;
  Sequence& sequence = *found->second;
  if (sequence.state() == SequenceState::kFinished) return false;
  end(sequence, FinishReason::kAbort);
  erase_if_done(sequence);
  return true;
}

SchedulerOutput Scheduler::schedule() {
  CHECK(can_schedule());
  step_.output = {};
  step_.decodes.clear();
  step_.prefills.clear();
  step_.prefill_entries.clear();
  step_.budget = config_.max_num_batched_tokens;
  step_.preempted = false;

  memory_.begin_step();
  for (Sequence* sequence : running_) memory_.free_behind_window(*sequence);
  announce_finished(step_.output);
  fill_step();
  const bool is_idle = step_.decodes.empty() && step_.prefills.empty() && num_steps_in_flight_ == 0;
  if (is_idle && end_rests()) fill_step();

  SchedulerOutput& output = step_.output;
  std::ranges::move(step_.prefill_entries, std::back_inserter(output.scheduled));
  if (output.empty()) return {};
  output.step = next_step_++;
  output.num_tokens = config_.max_num_batched_tokens - step_.budget;
  output.wants_drafts = may_draft();
  std::vector<Sequence*>& sequences = in_flight_[output.step % in_flight_.size()];
  sequences.assign(step_.decodes.begin(), step_.decodes.end());
  sequences.insert(sequences.end(), step_.prefills.begin(), step_.prefills.end());
  ++num_steps_in_flight_;
  return std::move(output);
}

void Scheduler::fill_step() {
  if (config_.policy == SchedulingPolicy::kPrefillFirst) {
    schedule_running(Phase::kPrefill);
    admit_waiting();
    if (step_.decodes.empty() && step_.prefills.empty()) schedule_running(Phase::kDecode);
  } else {
    schedule_running(Phase::kMixed);
    admit_waiting();
  }
}

bool Scheduler::end_rests() {
  bool some_did = false;
  for (Sequence* sequence : running_) {
    some_did = some_did || rests(*sequence);
    sequence->rests_until = 0;
  }
  return some_did;
}

void Scheduler::announce_finished(SchedulerOutput& output) {
  output.finished = std::exchange(finished_ids_, {});
  for (const SequenceId id : output.finished) {
    Sequence& sequence = *sequences_.at(id);
    sequence.known_to_runner = false;
    erase_if_done(sequence);
  }
}

int32_t Scheduler::num_tokens_for_step(const Sequence& sequence) const {
  if (rests(sequence)) return 0;
  if (config_.num_stages > 1 && sequence.num_pending_tokens() > 0) return 0;
  return sequence.num_schedulable_tokens();
}

bool Scheduler::decodes_in_step(const Sequence& sequence) const {
  return sequence.next_is_decode() && num_tokens_for_step(sequence) > 0;
}

int32_t Scheduler::max_decodes() const {
  if (config_.num_stages == 1) return INT32_MAX;
  const auto decodes = [](const Sequence* sequence) {
    return sequence->num_pending_tokens() > 0 || sequence->next_is_decode();
  };
  const auto count = static_cast<int32_t>(std::ranges::count_if(running_, decodes));
  const int32_t num_steps = std::min(config_.num_stages, config_.max_steps_in_flight);
  return (count + num_steps - 1) / num_steps;
}

void Scheduler::schedule_running(Phase phase) {
  // The decodes' share of the budget is set aside before any prefill takes from it.
  const int32_t max_num_decodes = max_decodes();
  int32_t num_decodes = 0, num_drafts = 0;
  for (const Sequence* sequence : running_) {
    if (phase == Phase::kPrefill || !decodes_in_step(*sequence)) continue;
    if (num_decodes == max_num_decodes) break;
    ++num_decodes;
    num_drafts += num_usable_drafts(*sequence);
  }
  step_.draft_budget = std::min(num_drafts, std::max(0, step_.budget - num_decodes) / 2);
  int32_t prefill_budget = std::max(0, step_.budget - num_decodes - step_.draft_budget);
  // In order of rank, so that a sequence that is preempted has no part in this step yet.
  for (size_t i = 0; i < running_.size() && step_.budget > 0; ++i) {
    Sequence& sequence = *running_[i];
    int32_t num_tokens = num_tokens_for_step(sequence);
    if (num_tokens == 0) continue;
    const bool is_decode = decodes_in_step(sequence);
    if (phase == (is_decode ? Phase::kPrefill : Phase::kDecode)) continue;
    if (is_decode && std::ssize(step_.decodes) >= max_num_decodes) continue;
    if (!is_decode) {
      num_tokens = chunk_of(sequence, std::min(num_tokens, prefill_budget));
      if (num_tokens == 0) continue;
    }
    if (!make_room(sequence, sequence.num_computed_tokens() + num_tokens)) break;
    if (!is_decode) prefill_budget -= num_tokens;
    commit(sequence, num_tokens, is_decode ? num_fitting_drafts(sequence) : 0, /*starts=*/false);
  }
}

bool Scheduler::make_room(Sequence& sequence, int32_t num_tokens) {
  while (!memory_.can_append(sequence, num_tokens)) {
    const bool is_last = running_.back() == &sequence;
    CHECK((!is_last || running_.size() > 1));  // alone, every admitted request fits
    preempt_last();
    if (is_last) return false;
  }
  return true;
}

void Scheduler::preempt_last() {
  Sequence& victim = *running_.back();
  running_.pop_back();
  memory_.free(victim);
  victim.preempt();
  waiting_.insert(&victim);
  ++counted_.num_preemptions;
  step_.preempted = true;
}

void Scheduler::admit_waiting() {
  if (step_.preempted) return;
  while (!waiting_.empty() && step_.budget > 0 &&
         static_cast<int64_t>(running_.size()) < config_.max_num_seqs) {
    if (!try_admit(**waiting_.begin())) return;
  }
}

bool Scheduler::try_admit(Sequence& sequence) {
  if (sequence.num_steps_in_flight() > 0) return false;
  if (obstacle_.sequence == &sequence && obstacle_.num_releases == memory_.num_releases() &&
      obstacle_.num_free >= memory_.blocks().num_free() && step_.budget < obstacle_.min_budget) {
    return false;
  }

  const int32_t num_known = sequence.num_known_tokens();
  // A hit would leave prompt tokens without logits.
  const bool wants_prompt_logprobs =
      sequence.sampling().prompt_logprobs.has_value() &&
      sequence.num_scored_prompt_tokens + 1 < sequence.num_prompt_tokens();
  const int32_t num_hits = wants_prompt_logprobs ? 0 : memory_.acquire_prefix(sequence);
  const int32_t num_missing = num_known - num_hits;
  const bool may_split = splits_prefills_ || num_missing > config_.max_num_batched_tokens;
  const bool fits_budget = may_split || num_missing <= step_.budget;
  // A block is kept back for each running sequence: it asks for one within block_size steps, and
  // would have to take it from the newcomer.
  const auto num_reserved = static_cast<int32_t>(running_.size());
  if (!fits_budget || !memory_.can_start(sequence, num_known, num_reserved)) {
    memory_.free(sequence);
    obstacle_ = {.sequence = &sequence,
                 .num_releases = memory_.num_releases(),
                 .num_free = memory_.blocks().num_free(),
                 .min_budget = fits_budget ? kNeedsRelease : num_missing};
    return false;
  }

  if (sequence.state() == SequenceState::kWaiting) {
    if (!wants_prompt_logprobs) memory_.blocks().count_query(num_known, num_hits);
    sequence.num_cached_prompt_tokens = num_hits;
  }
  waiting_.erase(waiting_.begin());
  running_.insert(std::ranges::upper_bound(running_, &sequence, waiting_.key_comp()), &sequence);
  sequence.start(num_hits);
  commit(sequence, chunk_of(sequence, std::min(num_missing, step_.budget)), 0, /*starts=*/true);
  return true;
}

int32_t Scheduler::chunk_of(const Sequence& sequence, int32_t num_tokens) const {
  if (!splits_prefills_) return num_tokens;
  if (config_.long_prefill_token_threshold > 0) {
    num_tokens = std::min(num_tokens, config_.long_prefill_token_threshold);
  }
  return memory_.up_to_checkpoint(sequence, num_tokens);
}

void Scheduler::commit(Sequence& sequence,
                       int32_t num_new_tokens,
                       int32_t num_drafts,
                       bool starts) {
  if (!sequence.known_to_runner) {
    const auto prompt = sequence.prompt_token_ids();
    step_.output.new_sequences.push_back({.id = sequence.id(),
                                          .prompt_token_ids = {prompt.begin(), prompt.end()},
                                          .sampling = sequence.sampling(),
                                          .grammar = sequence.grammar});
    sequence.known_to_runner = true;
  }
  ScheduledSequence entry;
  entry.id = sequence.id();
  entry.num_computed_tokens = sequence.num_computed_tokens();
  entry.num_new_tokens = num_new_tokens + num_drafts;
  if (starts) memory_.start(sequence, entry, step_.output);
  memory_.append(sequence, entry.num_computed_tokens + entry.num_new_tokens, entry);
  entry.num_sampled = sequence.advance(num_new_tokens) ? 1 + num_drafts : 0;
  if (config_.num_stages > 1) tell_stages(sequence, entry);
  sequence.num_drafts = 0;
  if (entry.samples()) reserve_lookahead(sequence, entry);
  memory_.save_checkpoint(sequence, entry, step_.output);
  memory_.register_known(sequence);
  step_.budget -= entry.num_new_tokens;
  step_.draft_budget -= num_drafts;

  if (entry.is_decode()) {
    if (step_.output.scheduled.empty()) step_.output.scheduled.reserve(running_.size());
    step_.output.scheduled.push_back(std::move(entry));
    step_.decodes.push_back(&sequence);
  } else {
    step_.prefill_entries.push_back(std::move(entry));
    step_.prefills.push_back(&sequence);
  }
}

void Scheduler::tell_stages(Sequence& sequence, ScheduledSequence& entry) const {
  const auto known = sequence.token_ids().subspan(static_cast<size_t>(sequence.num_told_tokens));
  entry.told_token_ids.assign(known.begin(), known.end());
  sequence.num_told_tokens = sequence.num_known_tokens();
  const auto first = sequence.draft_ids.begin();
  entry.told_drafts.assign(first, first + entry.num_drafts());
}

std::vector<SequenceId> Scheduler::reset() {
  std::vector<const Sequence*> unfinished(running_.begin(), running_.end());
  unfinished.insert(unfinished.end(), waiting_.begin(), waiting_.end());
  std::ranges::sort(unfinished, {}, &Sequence::arrival);
  std::vector<SequenceId> ids;
  for (const Sequence* sequence : unfinished) ids.push_back(sequence->id());
  running_.clear();
  waiting_.clear();
  finished_ids_.clear();
  sequences_.clear();
  obstacle_ = {};
  num_steps_in_flight_ = 0;
  memory_.reset();
  return ids;
}

SchedulerStats Scheduler::stats() const {
  const BlockManager& blocks = memory_.blocks();
  const StateSlots& slots = memory_.slots();
  SchedulerStats stats = counted_;
  stats.num_waiting = static_cast<int32_t>(waiting_.size());
  stats.num_running = static_cast<int32_t>(running_.size());
  stats.num_blocks = blocks.num_blocks();
  stats.num_free_blocks = blocks.num_free();
  stats.num_cached_blocks = blocks.num_cached();
  stats.num_state_slots = slots.num_slots();
  stats.num_free_state_slots = slots.num_available();
  stats.num_state_checkpoints = slots.num_checkpoints();
  stats.num_prefix_query_tokens = blocks.num_query_tokens();
  stats.num_prefix_hit_tokens = blocks.num_hit_tokens();
  stats.num_steps = next_step_;
  return stats;
}

const Sequence* Scheduler::find(SequenceId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second.get();
}

}  // namespace atom
