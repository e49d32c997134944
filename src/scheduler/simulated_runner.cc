#include "scheduler/simulated_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "scheduler/simulated_model.h"

namespace atom {

SimulatedRunner::SimulatedRunner(const SchedulerConfig& config,
                                 std::vector<int32_t> eos_token_ids,
                                 int32_t vocab_size)
    : config_(config),
      eos_token_ids_(std::move(eos_token_ids)),
      vocab_size_(vocab_size),
      splits_prefills_(config.enable_chunked_prefill &&
                       config.policy != SchedulingPolicy::kPrefillFirst),
      blocks_(config.num_blocks),
      slots_(static_cast<size_t>(config.num_blocks) * config.block_size),
      states_(config.num_state_slots),
      draws_(static_cast<uint64_t>(config.num_blocks) * 131 + config.max_model_len) {
  percent_right_ = 30 + draw() % 71;
}

uint64_t SimulatedRunner::draw() {
  return simulated_model::extend(draws_++, 0);
}

uint64_t SimulatedRunner::hash_at(const SequenceState& state, int32_t position) {
  const auto index = static_cast<size_t>(position);
  const size_t num_known = state.prefix_hashes.size();
  return index < num_known ? state.prefix_hashes[index] : state.drafted_hashes[index - num_known];
}

template <typename... Args>
void SimulatedRunner::expect(bool condition, const char* what, Args... values) {
  if (condition || !error_.empty()) return;
  error_ = what;
  ((error_ += fmt::format(" {}", values)), ...);
  error_ += fmt::format(" (step {})", next_step_);
}

void SimulatedRunner::push_token(SequenceState& state, int32_t token_id) {
  const uint64_t previous = state.prefix_hashes.empty()
                                ? simulated_model::start(state.sampling.cache_salt)
                                : state.prefix_hashes.back();
  state.token_ids.push_back(token_id);
  state.prefix_hashes.push_back(simulated_model::extend(previous, token_id));
}

uint64_t& SimulatedRunner::slot(const SequenceState& state, int32_t position, int32_t group) {
  const int32_t block_id = block_at(state, position, group);
  return slots_[static_cast<size_t>(block_id) * config_.block_size + position % config_.block_size];
}

ModelRunnerOutput SimulatedRunner::execute(const SchedulerOutput& output) {
  ModelRunnerOutput result{.step = output.step, .sequences = {}};
  if (!started_) next_step_ = output.step;
  started_ = true;
  expect(output.step == next_step_, "steps out of order", output.step);
  expect(!output.empty(), "an empty step was executed");
  wants_drafts_ = output.wants_drafts;
  for (const SequenceId id : output.finished) {
    expect(sequences_.erase(id) == 1, "finished a sequence that is not there", id);
  }
  for (const NewSequence& added : output.new_sequences) {
    expect(seen_.insert(added.id).second, "a new sequence was seen before", added.id);
    SequenceState& state = sequences_[added.id];
    state.sampling = added.sampling;
    state.num_prompt_tokens = static_cast<int32_t>(added.prompt_token_ids.size());
    for (const int32_t token_id : added.prompt_token_ids) push_token(state, token_id);
    state.num_told = state.token_ids.size();
  }
  check_step(output);
  if (!error_.empty()) return result;

  // Phase by phase over all sequences, as one layer does: writes before reads.
  for (const ScheduledSequence& scheduled : output.scheduled) {
    check_told(scheduled, sequences_.at(scheduled.id));
    apply_blocks(scheduled, sequences_.at(scheduled.id));
    take_slot(scheduled, sequences_.at(scheduled.id));
  }
  check_copies(output);
  if (!error_.empty()) return result;
  copy_states(output.state_restores);
  for (const ScheduledSequence& scheduled : output.scheduled) {
    write(scheduled, sequences_.at(scheduled.id));
  }
  for (const ScheduledSequence& scheduled : output.scheduled) {
    check_reads(scheduled, sequences_.at(scheduled.id));
    advance_state(scheduled, sequences_.at(scheduled.id));
  }
  copy_states(output.state_saves);
  result.sequences.reserve(output.scheduled.size());
  for (const ScheduledSequence& scheduled : output.scheduled) {
    result.sequences.push_back(answer(scheduled, sequences_.at(scheduled.id)));
  }
  ++next_step_;
  return result;
}

void SimulatedRunner::check_step(const SchedulerOutput& output) {
  int32_t num_tokens = 0;
  bool prefills_begun = false;
  bool admits = false;
  for (const ScheduledSequence& scheduled : output.scheduled) {
    num_tokens += scheduled.num_new_tokens;
    expect(!(scheduled.is_decode() && prefills_begun), "a decode behind a prefill", scheduled.id);
    prefills_begun |= !scheduled.is_decode();
    admits |= scheduled.reset_block_table;
    const auto found = sequences_.find(scheduled.id);
    expect(found != sequences_.end(), "scheduled a sequence that is not there", scheduled.id);
    if (!error_.empty()) return;
    expect(found->second.last_step != output.step, "scheduled twice", scheduled.id);
    found->second.last_step = output.step;
  }
  expect(num_tokens == output.num_tokens, "num_tokens is not the sum", num_tokens);
  expect(num_tokens <= config_.max_num_batched_tokens, "over the token budget", num_tokens);
  expect(static_cast<int32_t>(output.scheduled.size()) <= config_.max_num_seqs,
         "over max_num_seqs",
         output.scheduled.size());
  if (config_.policy != SchedulingPolicy::kPrefillFirst || !admits) return;
  for (const ScheduledSequence& scheduled : output.scheduled) {
    expect(scheduled.reset_block_table || sequences_.at(scheduled.id).in_prefill,
           "prefill and decode mixed",
           scheduled.id);
  }
}

void SimulatedRunner::check_told(const ScheduledSequence& scheduled, SequenceState& state) {
  const std::vector<int32_t>& told = scheduled.told_token_ids;
  if (config_.num_stages == 1) {
    expect(told.empty() && scheduled.told_drafts.empty(), "told without stages", scheduled.id);
    return;
  }
  const auto missing = std::span(state.token_ids).subspan(state.num_told);
  expect(std::ranges::equal(told, missing), "not told what was sampled", scheduled.id);
  state.num_told = state.token_ids.size();
  const auto num_drafts = static_cast<size_t>(scheduled.num_drafts());
  expect(num_drafts <= state.drafts.size() &&
             std::ranges::equal(scheduled.told_drafts, std::span(state.drafts).first(num_drafts)),
         "not told the drafts",
         scheduled.id);
}

void SimulatedRunner::apply_blocks(const ScheduledSequence& scheduled, SequenceState& state) {
  const int32_t begin = scheduled.num_computed_tokens;
  const int32_t num_drafts = scheduled.num_drafts();
  const int32_t last = begin + scheduled.num_new_tokens;
  const int32_t end = last - num_drafts;
  const auto num_tokens = static_cast<int32_t>(state.token_ids.size());
  const int32_t num_outputs = num_tokens - state.num_prompt_tokens;
  expect(num_drafts <= std::ssize(state.drafts), "drafts that nobody made", scheduled.id);
  expect(num_drafts == 0 || scheduled.is_decode(), "drafts behind a prefill", scheduled.id);
  expect(scheduled.num_new_tokens >= 1, "no tokens scheduled for", scheduled.id);
  expect(end <= num_tokens, "scheduled past the last token of", scheduled.id);
  const bool scores_only = state.sampling.max_tokens == 0;
  expect(scheduled.samples() == (end == num_tokens && !scores_only), "wrong samples", scheduled.id);
  expect(!scheduled.samples() || num_outputs + num_drafts < state.sampling.max_tokens,
         "scheduled past max_tokens",
         scheduled.id);
  const int32_t num_groups = config_.num_kv_groups;
  expect(scheduled.new_block_ids.size() % num_groups == 0, "part of the groups", scheduled.id);
  auto num_shared = static_cast<int32_t>(state.block_ids.size() / num_groups);
  if (scheduled.reset_block_table) {
    expect(begin % config_.block_size == 0, "a hit that is no whole block", scheduled.id, begin);
    expect(config_.enable_prefix_caching || begin == 0, "a hit without a cache", scheduled.id);
    state.block_ids.clear();
    state.num_reserved = 0;
    num_shared = begin / config_.block_size;
    expect(num_shared * num_groups <= std::ssize(scheduled.new_block_ids),
           "hits without blocks",
           scheduled.id);
    // The one prefill that may be split where prefills are not is longer than a step.
    expect(splits_prefills_ || end == num_tokens ||
               num_tokens - begin > config_.max_num_batched_tokens,
           "a split prefill",
           scheduled.id);
  } else {
    expect(begin == state.next_token, "not contiguous", scheduled.id, begin, state.next_token);
  }
  state.block_ids.insert(
      state.block_ids.end(), scheduled.new_block_ids.begin(), scheduled.new_block_ids.end());
  const int32_t most =
      std::max(end, state.num_prompt_tokens + std::max(0, state.sampling.max_tokens - 1));
  const int32_t lookahead = scheduled.samples() ? config_.num_lookahead_tokens : 0;
  state.num_reserved = std::max(state.num_reserved, std::min(most, last + lookahead));
  const int64_t num_blocks = std::ssize(state.block_ids) / num_groups;
  expect(num_blocks >= num_blocks_for(last, config_.block_size) &&
             num_blocks <= num_blocks_for(state.num_reserved, config_.block_size),
         "wrong number of blocks",
         scheduled.id);
  check_blocks(scheduled, state, num_shared);
  state.next_token = end;
  state.in_prefill = end != num_tokens;
}

// Blocks that a sequence gets as its own are empty.
void SimulatedRunner::check_blocks(const ScheduledSequence& scheduled,
                                   const SequenceState& state,
                                   int32_t num_shared) {
  const int32_t num_groups = config_.num_kv_groups;
  const auto num_ids = static_cast<int32_t>(state.block_ids.size());
  const int32_t num_behind = config_.num_blocks_behind(scheduled.num_computed_tokens);
  for (int32_t i = 0; i < num_ids; ++i) {
    const int32_t block_id = state.block_ids[i];
    const int32_t group = i % num_groups;
    const bool may_miss = config_.window_of_group(group) > 0 && i / num_groups < num_behind;
    if (block_id == -1 && may_miss) continue;
    expect(block_id >= 0 && block_id < config_.num_blocks, "no such block", block_id);
    if (!error_.empty()) return;
    if (i / num_groups < num_shared) continue;
    blocks_[block_id] = {.owner = scheduled.id, .group = group, .num_written = 0};
  }
}

void SimulatedRunner::take_slot(const ScheduledSequence& scheduled, SequenceState& state) {
  const bool has_states = config_.num_state_slots > 0;
  const bool gets_slot = has_states && scheduled.reset_block_table;
  expect(std::ssize(scheduled.state_slots) == (gets_slot ? config_.num_slots_per_sequence() : 0),
         "slots at the wrong time",
         scheduled.id);
  if (!gets_slot) return;
  for (const int32_t slot : scheduled.state_slots) {
    expect(slot >= 0 && slot < config_.num_state_slots, "no such slot", slot);
  }
  const int32_t begin = scheduled.num_computed_tokens;
  expect(begin == 0 || config_.state_checkpoint_interval > 0,
         "a hit without a checkpoint",
         scheduled.id,
         begin);
  state.state_slots = scheduled.state_slots;
  state.state_index = 0;
}

void SimulatedRunner::check_copies(const SchedulerOutput& output) {
  std::unordered_map<int32_t, const ScheduledSequence*> users;
  for (const ScheduledSequence& scheduled : output.scheduled) {
    for (const int32_t slot : sequences_.at(scheduled.id).state_slots) {
      expect(users.emplace(slot, &scheduled).second, "a slot with two users", slot);
    }
  }
  for (const auto& [from, to] : output.state_restores) {
    const auto user = users.find(to);
    expect(user != users.end() && user->second->reset_block_table &&
               user->second->num_computed_tokens > 0,
           "restored for nobody who starts",
           to);
    expect(from >= 0 && from < config_.num_state_slots && from != to, "restored from", from);
  }
  for (const auto& [from, to] : output.state_saves) {
    const auto user = users.find(from);
    expect(user != users.end(), "saved a slot that does not compute", from);
    expect(to >= 0 && to < config_.num_state_slots && !users.contains(to), "saved to", to);
    if (!error_.empty()) return;
    expect(user->second->num_drafts() == 0, "saved with drafts", from);
    const int32_t end = user->second->num_computed_tokens + user->second->num_new_tokens;
    expect(end % config_.block_size == 0, "saved at", end);
  }
}

void SimulatedRunner::copy_states(const std::vector<StateCopy>& copies) {
  for (const auto& [from, to] : copies) states_[to] = states_[from];
}

void SimulatedRunner::advance_state(const ScheduledSequence& scheduled, SequenceState& state) {
  if (state.state_slots.empty()) return;
  const int32_t begin = scheduled.num_computed_tokens;
  uint64_t value = states_[state.state_slots[state.state_index]];
  if (begin == 0) {
    value = simulated_model::start(state.sampling.cache_salt);
  } else {
    expect(value == hash_at(state, begin - 1), "wrong state at", scheduled.id, begin);
  }
  // The state behind each of the tokens that count only if they were sampled has a slot.
  const int32_t end = begin + scheduled.num_new_tokens;
  const int32_t first_kept = end - 1 - scheduled.num_drafts();
  for (int32_t position = begin; position < end; ++position) {
    const auto num_known = static_cast<int32_t>(state.token_ids.size());
    value = simulated_model::extend(
        value,
        position < num_known ? state.token_ids[position] : state.drafts[position - num_known]);
    if (position >= first_kept) states_[state.state_slots[position - first_kept]] = value;
  }
  state.state_index = 0;
}

// What layers of a group keep differs from what those of another keep of the same token.
void SimulatedRunner::write(const ScheduledSequence& scheduled, const SequenceState& state) {
  const int32_t begin = scheduled.num_computed_tokens;
  for (int32_t position = begin; position < begin + scheduled.num_new_tokens; ++position) {
    for (int32_t group = 0; group < config_.num_kv_groups; ++group) {
      BlockState& block = blocks_[block_at(state, position, group)];
      expect(block.owner == scheduled.id, "wrote another's block", scheduled.id, block.owner);
      expect(block.group == group, "wrote another group's block", scheduled.id, position);
      expect(block.num_written == position % config_.block_size, "wrote twice", scheduled.id);
      ++block.num_written;
      slot(state, position, group) = hash_at(state, position) + group;
    }
  }
}

void SimulatedRunner::check_reads(const ScheduledSequence& scheduled, const SequenceState& state) {
  const int32_t begin = scheduled.num_computed_tokens;
  for (int32_t group = 0; group < config_.num_kv_groups; ++group) {
    const int32_t window = config_.window_of_group(group);
    const int32_t first = window == 0 ? 0 : std::max(0, begin - window + 1);
    for (int32_t position = first; position < begin + scheduled.num_new_tokens; ++position) {
      const int32_t block_id = block_at(state, position, group);
      if (block_id >= 0 && slot(state, position, group) == hash_at(state, position) + group) {
        continue;
      }
      return expect(false, "wrong KV at sequence, position", scheduled.id, position, group);
    }
  }
}

SequenceOutput SimulatedRunner::answer(const ScheduledSequence& scheduled, SequenceState& state) {
  SequenceOutput output;
  output.id = scheduled.id;
  const int32_t end = scheduled.num_computed_tokens + scheduled.num_new_tokens;
  if (state.sampling.prompt_logprobs.has_value()) {
    for (int32_t i = scheduled.num_computed_tokens + 1; i <= end && i < state.num_prompt_tokens;
         ++i) {
      output.prompt_logprobs.push_back(
          {{.token_id = state.token_ids[i], .logprob = -static_cast<float>(i), .rank = 1}});
    }
  }
  if (!scheduled.samples()) return output;
  const std::vector<int32_t> drafts = std::exchange(state.drafts, {});
  for (int32_t i = 0; i < scheduled.num_sampled; ++i) {
    const auto num_tokens = static_cast<int32_t>(state.token_ids.size());
    push_token(state, sample(state, num_tokens - 1, num_tokens - state.num_prompt_tokens));
    output.token_ids.push_back(state.token_ids.back());
    if (i == scheduled.num_drafts() || drafts[i] != output.token_ids.back()) break;
  }
  if (state.sampling.logprobs.has_value()) {
    for (const int32_t token_id : output.token_ids) {
      output.logprobs.push_back({{.token_id = token_id, .logprob = -1, .rank = 1}});
    }
  }
  if (!state.state_slots.empty()) state.state_index = output.token_ids.size() - 1;
  state.next_token = static_cast<int32_t>(state.token_ids.size()) - 1;
  forget_rejected(scheduled, state);
  if (wants_drafts_) propose(state);
  output.num_drafts = static_cast<int32_t>(state.drafts.size());
  output.draft_ids = state.drafts;
  return output;
}

int32_t SimulatedRunner::sample(const SequenceState& state, int32_t position, int32_t num_outputs) {
  return simulated_model::next_token(
      slot(state, position), state.sampling, eos_token_ids_, num_outputs, vocab_size_);
}

// Their places are written again.
void SimulatedRunner::forget_rejected(const ScheduledSequence& scheduled, SequenceState& state) {
  const int32_t end = scheduled.num_computed_tokens + scheduled.num_new_tokens;
  for (int32_t position = state.next_token; position < end; ++position) {
    for (int32_t group = 0; group < config_.num_kv_groups; ++group) {
      --blocks_[block_at(state, position, group)].num_written;
    }
  }
}

void SimulatedRunner::propose(SequenceState& state) {
  const auto num_known = static_cast<int32_t>(state.token_ids.size());
  const int32_t num_outputs = num_known - state.num_prompt_tokens;
  const auto num_drafts = static_cast<int32_t>(draw() % (config_.num_speculative_tokens + 1));
  state.drafted_hashes.clear();
  uint64_t hash = state.prefix_hashes.back();
  for (int32_t i = 0; i < num_drafts; ++i) {
    int32_t token_id = simulated_model::next_token(
        hash, state.sampling, eos_token_ids_, num_outputs + i, vocab_size_);
    if (draw() % 100 >= percent_right_) token_id = static_cast<int32_t>(draw() % vocab_size_);
    hash = simulated_model::extend(hash, token_id);
    state.drafts.push_back(token_id);
    state.drafted_hashes.push_back(hash);
  }
  const auto num_positions =
      static_cast<int32_t>(state.block_ids.size()) / config_.num_kv_groups * config_.block_size;
  for (int32_t i = 0; i < config_.num_lookahead_tokens; ++i) {
    const int32_t position = num_known - 1 + i;
    if (position >= num_positions) break;
    expect(blocks_[block_at(state, position, 0)].num_written <= position % config_.block_size,
           "drafted over what is written",
           position);
    slot(state, position) = ~hash;
  }
}

}  // namespace atom
