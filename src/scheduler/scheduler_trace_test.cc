// Random traces of requests against the simulated runner, every invariant checked at every step.
// ATOM_SCHEDULER_TRACE_STEPS sets the number of steps of each case.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "scheduler/scheduler.h"
#include "scheduler/simulated_runner.h"

namespace atom {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kDefaultSteps = 40'000;
#else
constexpr int64_t kDefaultSteps = 300'000;
#endif
constexpr int64_t kStepsPerEpisode = 600;

// Traces with state slots are as many more: a fifth of the steps unless they are asked for.
int64_t num_steps_wanted(bool has_states) {
  const char* value = std::getenv("ATOM_SCHEDULER_TRACE_STEPS");
  if (value != nullptr) return std::atoll(value);
  return has_states ? kDefaultSteps / 5 : kDefaultSteps;
}

struct Totals {
  int64_t num_steps = 0;
  int64_t num_requests = 0;
  int64_t num_refused = 0;
  int64_t num_aborted = 0;
  int64_t num_stopped = 0;
  int64_t num_length = 0;
  int64_t num_hit_tokens = 0;
  int64_t num_preemptions = 0;
  int64_t num_shared_blocks = 0;
  int64_t num_resets = 0;
  int64_t num_saves = 0;     // of checkpoints
  int64_t num_restores = 0;  // likewise
  int64_t num_waits = 0;     // steps after which somebody waited while no slot was free
  int64_t num_verified = 0;  // drafts
  int64_t num_accepted = 0;  // of them
};

struct Request {
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  std::vector<int32_t> answer;
  std::vector<int32_t> scored;  // prompt tokens whose logprobs came
  int64_t deadline = INT64_MAX;
};

// One random configuration and the requests of one run.
class Episode {
 public:
  Episode(SchedulingPolicy policy,
          int32_t max_steps_in_flight,
          bool has_states,
          bool drafts,
          uint64_t seed,
          Totals& totals)
      : random_(seed),
        totals_(totals),
        config_(random_config(policy, max_steps_in_flight, has_states, drafts)),
        scheduler_(config_, kEos),
        runner_(std::make_unique<SimulatedRunner>(config_, kEos, kVocab)),
        add_percent_(between(1, 60)),
        references_(config_.num_blocks) {
    for (auto& tokens : bases_) {
      for (int i = 0; i < config_.max_model_len; ++i) tokens.push_back(between(0, kVocab - 1));
    }
  }

  void run() {
    while (steps_ < kStepsPerEpisode && error_.empty()) turn(/*draining=*/false);
    // Whatever is left must finish within a time that its work bounds.
    const int64_t load = load_of_all();
    drain_deadline_ = steps_ + 64 + load * static_cast<int64_t>(requests_.size() + 2);
    if (config_.policy == SchedulingPolicy::kPrefillFirst) {
      drain_deadline_ += 2 * load * (config_.max_num_seqs + 2);
    }
    while (error_.empty() && (scheduler_.has_work() || !in_flight_.empty())) {
      turn(/*draining=*/true);
    }
    if (error_.empty()) {
      expect(requests_.empty(), "requests left behind");
      for (SequenceId id = 1; id < next_id_; ++id) {
        expect(scheduler_.find(id) == nullptr, "not forgotten", id);
      }
      expect(scheduler_.block_manager().num_free() == config_.num_blocks, "blocks left behind");
      const SequenceMemory& memory = scheduler_.memory();
      expect(memory.slots().num_available() + static_cast<int32_t>(memory.num_saved()) ==
                 config_.num_state_slots,
             "slots left behind");
      expect(runner_->num_sequences() == 0, "the runner was not told of a finished sequence");
    }
    const SchedulerStats stats = scheduler_.stats();
    totals_.num_verified += stats.num_draft_tokens;
    totals_.num_accepted += stats.num_accepted_tokens;
    totals_.num_steps += steps_;
    totals_.num_hit_tokens += stats.num_prefix_hit_tokens;
    totals_.num_preemptions += stats.num_preemptions;
  }

  const std::string& error() const { return error_; }

  std::string describe() const {
    return fmt::format(
        "block_size {} num_blocks {} max_num_seqs {} budget {} max_model_len {} chunked {} caching "
        "{} slots {} interval {} drafts {} lookahead {} up to {}",
        config_.block_size,
        config_.num_blocks,
        config_.max_num_seqs,
        config_.max_num_batched_tokens,
        config_.max_model_len,
        config_.enable_chunked_prefill,
        config_.enable_prefix_caching,
        config_.num_state_slots,
        config_.state_checkpoint_interval,
        config_.num_speculative_tokens,
        config_.num_lookahead_tokens,
        config_.speculative_disable_by_batch_size);
  }

 private:
  static constexpr int32_t kVocab = 24;
  inline static const std::vector<int32_t> kEos = {0, 7};

  int32_t between(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }
  bool percent(int32_t chance) { return between(0, 99) < chance; }

  void expect(bool condition, const char* what, uint64_t value = 0) {
    if (condition || !error_.empty()) return;
    error_ = fmt::format("{} {} (at step {})", what, value, steps_);
  }

  SchedulerConfig random_config(SchedulingPolicy policy,
                                int32_t max_steps_in_flight,
                                bool has_states,
                                bool drafts) {
    constexpr int32_t kBlockSizes[] = {1, 2, 3, 4, 8, 16};
    SchedulerConfig config;
    config.block_size = kBlockSizes[between(0, 5)];
    config.max_model_len = between(8, 64);
    const auto whole =
        static_cast<int32_t>(num_blocks_for(config.max_model_len, config.block_size));
    config.num_blocks =
        std::max(1, whole * (percent(60) ? between(100, 200) : between(50, 400)) / 100);
    config.max_num_seqs = between(1, 12);
    config.max_num_batched_tokens = percent(20) ? between(1, 8) : between(8, 80);
    config.max_num_waiting = percent(50) ? between(1, 8) : 1000;
    config.enable_prefix_caching = percent(85);
    config.enable_chunked_prefill = percent(65);
    config.policy = policy;
    config.max_steps_in_flight = max_steps_in_flight;
    if (drafts) {
      config.num_speculative_tokens = percent(10) ? kMaxSpeculativeTokens : between(1, 5);
      config.num_lookahead_tokens = percent(50) ? 0 : config.num_speculative_tokens - 1;
      config.speculative_disable_by_batch_size = percent(70) ? 0 : between(1, config.max_num_seqs);
    }
    if (has_states) {
      const int32_t num_slots = percent(30) ? between(1, 4) : config.max_num_seqs + between(1, 24);
      config.num_state_slots = num_slots * config.num_slots_per_sequence();
      config.state_checkpoint_interval = percent(90) ? between(1, 4) * config.block_size : 0;
    }
    return config;
  }

  std::vector<int32_t> random_prompt() {
    if (percent(1)) return {};
    const std::vector<int32_t>& base =
        percent(30) && !past_.empty() ? past_ : bases_[between(0, 2)];
    const int32_t num_shared = between(0, std::min<int32_t>(base.size(), config_.max_model_len));
    std::vector<int32_t> prompt(base.begin(), base.begin() + num_shared);
    const int32_t num_own = percent(40) ? 0 : between(0, 10);
    for (int i = 0; i < num_own; ++i) prompt.push_back(between(0, kVocab - 1));
    if (prompt.empty()) prompt.push_back(between(0, kVocab - 1));
    return prompt;
  }

  SamplingParams random_sampling() {
    constexpr const char* kSalts[] = {"", "", "a", "b"};
    SamplingParams sampling;
    sampling.seed = between(0, 3);
    sampling.max_tokens = percent(5) ? 0 : percent(20) ? 1'000'000 : between(1, 24);
    sampling.min_tokens = percent(30) ? between(0, 8) : 0;
    sampling.ignore_eos = percent(50);
    if (percent(30)) sampling.stop_token_ids = {between(0, kVocab - 1), between(0, kVocab - 1)};
    if (percent(10)) sampling.prompt_logprobs = 0;
    if (percent(10)) sampling.logprobs = 0;
    sampling.priority = between(-2, 2);
    sampling.cache_salt = kSalts[between(0, 3)];
    return sampling;
  }

  int32_t clipped_max_tokens(const Request& request) const {
    return std::min<int32_t>(request.sampling.max_tokens,
                             config_.max_model_len - request.prompt.size());
  }

  StatusCode expected_code(const Request& request) const {
    const auto num_prompt = static_cast<int32_t>(request.prompt.size());
    const int32_t max_tokens = clipped_max_tokens(request);
    const bool whole_only =
        !config_.enable_chunked_prefill || config_.policy == SchedulingPolicy::kPrefillFirst;
    const int32_t num_kv = num_prompt + std::max(max_tokens - 1, 0);
    if (num_prompt == 0 || num_prompt > config_.max_model_len ||
        (request.sampling.max_tokens > 0 && num_prompt == config_.max_model_len) ||
        (whole_only && num_prompt > config_.max_num_batched_tokens) ||
        num_kv > config_.num_blocks * config_.block_size) {
      return StatusCode::kInvalidArgument;
    }
    const SchedulerStats stats = scheduler_.stats();
    const bool is_full =
        stats.num_waiting + stats.num_running >= config_.max_num_seqs + config_.max_num_waiting;
    return is_full ? StatusCode::kResourceExhausted : StatusCode::kOk;
  }

  int64_t load_of_all() const {
    int64_t load = 0;
    for (const auto& [id, request] : requests_) {
      load += request.prompt.size() + clipped_max_tokens(request) + 4;
    }
    return load;
  }

  void add_request() {
    Request request{
        .prompt = random_prompt(), .sampling = random_sampling(), .answer = {}, .scored = {}};
    const StatusCode expected = expected_code(request);
    const SequenceId id = next_id_++;
    const Status status = scheduler_.add(id, request.prompt, request.sampling);
    expect(status.code() == expected, "wrong admission", static_cast<uint64_t>(status.code()));
    if (!status.ok()) {
      ++totals_.num_refused;
      return;
    }
    ++totals_.num_requests;
    Request& kept = requests_[id] = std::move(request);
    // The oldest request always moves, so a request is done when the work before it and its own is.
    const int64_t load = load_of_all();
    if (config_.policy == SchedulingPolicy::kFcfs) kept.deadline = steps_ + 32 + 2 * load;
    if (config_.policy == SchedulingPolicy::kPrefillFirst) {
      kept.deadline = steps_ + 32 + 2 * load * (config_.max_num_seqs + 2);
    }
  }

  void abort_request() {
    if (requests_.empty()) return;
    auto victim = requests_.begin();
    std::advance(victim, between(0, static_cast<int32_t>(requests_.size()) - 1));
    expect(scheduler_.abort(victim->first), "abort refused", victim->first);
    expect(!scheduler_.abort(victim->first), "aborted twice", victim->first);
    requests_.erase(victim);
    ++totals_.num_aborted;
    check_pool();
  }

  void fail_engine() {
    std::vector<SequenceId> expected;
    for (const auto& [id, request] : requests_) expected.push_back(id);
    expect(scheduler_.reset() == expected, "reset lost a request");
    requests_.clear();
    in_flight_.clear();
    runner_ = std::make_unique<SimulatedRunner>(config_, kEos, kVocab);
    ++totals_.num_resets;
    check_pool();
  }

  // Some arrivals, as many steps scheduled as may be, one answered.
  void turn(bool draining) {
    if (!draining) {
      while (percent(add_percent_) && requests_.size() < 40) add_request();
      if (percent(2)) abort_request();
      if (between(0, 4999) == 0) fail_engine();
    }
    while (scheduler_.can_schedule() && !percent(10)) {
      const bool had_work = scheduler_.has_work();
      SchedulerOutput output = scheduler_.schedule();
      check_pool();
      expect(had_work || output.empty(), "a step without work");
      totals_.num_saves += std::ssize(output.state_saves);
      totals_.num_restores += std::ssize(output.state_restores);
      if (output.empty()) {
        expect(!in_flight_.empty() || !scheduler_.has_work(), "stuck");
        break;
      }
      in_flight_.push_back(std::move(output));
    }
    if (in_flight_.empty() || !error_.empty()) return;
    const SchedulerOutput output = std::move(in_flight_.front());
    in_flight_.pop_front();
    ModelRunnerOutput answer = runner_->execute(output);
    if (!runner_->error().empty()) {
      expect(false, runner_->error().c_str());
      return;
    }
    for (SequenceUpdate& update : scheduler_.postprocess(output, std::move(answer))) {
      take_update(update);
    }
    ++steps_;
    check_pool();
    check_deadlines(draining);
  }

  void take_update(const SequenceUpdate& update) {
    const auto found = requests_.find(update.id);
    expect(found != requests_.end(), "an update of a finished request", update.id);
    if (!error_.empty()) return;
    Request& request = found->second;
    request.answer.insert(request.answer.end(), update.token_ids.begin(), update.token_ids.end());
    for (const TokenLogprobs& logprobs : update.prompt_logprobs) {
      request.scored.push_back(logprobs[0].token_id);
    }
    expect(update.logprobs.size() ==
               (request.sampling.logprobs.has_value() ? update.token_ids.size() : 0),
           "logprobs lost",
           update.id);
    if (update.finish_reason == FinishReason::kNone) return;
    check_answer(update, request);
    past_ = request.prompt;
    past_.insert(past_.end(), request.answer.begin(), request.answer.end());
    requests_.erase(found);
  }

  // What the model says with nothing shared, batched, preempted or ahead.
  void check_answer(const SequenceUpdate& update, const Request& request) {
    SamplingParams sampling = request.sampling;
    sampling.max_tokens = clipped_max_tokens(request);
    uint64_t hash = simulated_model::start(sampling.cache_salt);
    for (const int32_t token_id : request.prompt) hash = simulated_model::extend(hash, token_id);
    std::vector<int32_t> answer;
    FinishReason reason = FinishReason::kLength;
    while (static_cast<int32_t>(answer.size()) < sampling.max_tokens) {
      const auto num_outputs = static_cast<int32_t>(answer.size());
      const int32_t token_id =
          simulated_model::next_token(hash, sampling, kEos, num_outputs, kVocab);
      answer.push_back(token_id);
      hash = simulated_model::extend(hash, token_id);
      const bool is_eos = !sampling.ignore_eos && (token_id == kEos[0] || token_id == kEos[1]);
      if (num_outputs >= sampling.min_tokens &&
          (is_eos || std::ranges::count(sampling.stop_token_ids, token_id) > 0)) {
        reason = FinishReason::kStop;
        break;
      }
    }
    expect(request.answer == answer, "wrong answer of", update.id);
    expect(update.finish_reason == reason, "wrong finish reason of", update.id);
    expect(update.stop_token_id.has_value() == (reason == FinishReason::kStop), "stop token");
    if (sampling.prompt_logprobs.has_value()) {
      expect(std::ranges::equal(request.scored, std::span(request.prompt).subspan(1)),
             "wrong prompt logprobs of",
             update.id);
    }
    ++(reason == FinishReason::kStop ? totals_.num_stopped : totals_.num_length);
  }

  void check_pool() {
    std::ranges::fill(references_, 0);
    int32_t num_running = 0;
    int32_t num_pending = 0;  // checkpoints
    std::vector<int32_t> slots;
    for (const auto& [id, request] : requests_) {
      const Sequence* sequence = scheduler_.find(id);
      expect(sequence != nullptr, "lost a sequence", id);
      if (sequence == nullptr) return;
      if (sequence->state() == SequenceState::kFinished) continue;
      num_running += sequence->state() == SequenceState::kRunning;
      for (const int32_t block_id : sequence->block_table.block_ids) ++references_[block_id];
      slots.insert(slots.end(), sequence->recurrent.slots.begin(), sequence->recurrent.slots.end());
      expect(sequence->block_table.num_registered * config_.block_size <=
                 std::min(sequence->num_known_tokens(), sequence->num_computed_tokens()),
             "registered what is not known",
             id);
      for (const PendingCheckpoint& pending : sequence->recurrent.checkpoints) {
        slots.push_back(pending.slot);
        ++num_pending;
      }
    }
    check_slots(slots, num_running * config_.num_slots_per_sequence() + num_pending);
    const BlockManager& manager = scheduler_.block_manager();
    int32_t num_referenced = 0;
    for (int32_t block_id = 0; block_id < config_.num_blocks; ++block_id) {
      expect(manager.ref_count(block_id) == references_[block_id], "wrong count", block_id);
      num_referenced += references_[block_id] > 0;
      totals_.num_shared_blocks += references_[block_id] > 1;
    }
    expect(num_referenced + manager.num_free() == config_.num_blocks, "blocks leaked");
    expect(num_running <= config_.max_num_seqs, "too many running", num_running);
    expect(num_running == scheduler_.stats().num_running, "wrong num_running", num_running);
  }

  // The slots of all sequences: each running one has its own.
  void check_slots(std::vector<int32_t>& slots, int32_t num_wanted) {
    if (config_.num_state_slots == 0) return expect(slots.empty(), "slots without states");
    const SequenceMemory& memory = scheduler_.memory();
    expect(std::ssize(slots) == num_wanted, "wrong number of slots", slots.size());
    expect(num_wanted + static_cast<int64_t>(memory.num_saved()) + memory.slots().num_available() ==
               config_.num_state_slots,
           "slots leaked");
    std::ranges::sort(slots);
    expect(std::ranges::adjacent_find(slots) == slots.end(), "a slot with two sequences");
    totals_.num_waits += memory.slots().num_available() < config_.num_slots_per_sequence() &&
                         scheduler_.stats().num_waiting > 0;
  }

  void check_deadlines(bool draining) {
    if (draining) expect(steps_ <= drain_deadline_, "the drain takes too long");
    // Ids ascend with arrival, deadlines with ids.
    if (!requests_.empty()) {
      const auto& [id, request] = *requests_.begin();
      expect(steps_ <= request.deadline, "starved", id);
    }
  }

  std::mt19937_64 random_;
  Totals& totals_;
  const SchedulerConfig config_;
  Scheduler scheduler_;
  std::unique_ptr<SimulatedRunner> runner_;
  const int32_t add_percent_;
  std::vector<int32_t> references_;
  std::vector<int32_t> bases_[3];  // prompts begin with part of one of these
  std::vector<int32_t> past_;      // or of a finished conversation
  std::map<SequenceId, Request> requests_;
  std::deque<SchedulerOutput> in_flight_;
  SequenceId next_id_ = 1;
  int64_t steps_ = 0;
  int64_t drain_deadline_ = 0;
  std::string error_;
};

// Policy, steps in flight, whether the model has states, whether there are drafts.
using Case = std::tuple<SchedulingPolicy, int32_t, bool, bool>;

class SchedulerTraceTest : public testing::TestWithParam<Case> {};

TEST_P(SchedulerTraceTest, HoldsEveryInvariantAtEveryStep) {
  const auto [policy, max_steps_in_flight, has_states, drafts] = GetParam();
  const int64_t wanted = num_steps_wanted(has_states || drafts);
  Totals totals;
  for (uint64_t episode = 0; totals.num_steps < wanted; ++episode) {
    const uint64_t seed = episode * 1000 + static_cast<uint64_t>(policy) * 10 + max_steps_in_flight;
    Episode run(policy, max_steps_in_flight, has_states, drafts, seed, totals);
    run.run();
    ASSERT_EQ(run.error(), "") << "seed " << seed << ", " << run.describe();
  }
  fmt::print(
      "{} steps: {} requests, {} refused, {} aborted, {} stopped, {} at their length, {} hit "
      "tokens, "
      "{} preemptions, {} shared blocks seen, {} resets, {} checkpoints saved, {} restored, {} "
      "waits "
      "for a slot, {} of {} drafts accepted\n",
      totals.num_steps,
      totals.num_requests,
      totals.num_refused,
      totals.num_aborted,
      totals.num_stopped,
      totals.num_length,
      totals.num_hit_tokens,
      totals.num_preemptions,
      totals.num_shared_blocks,
      totals.num_resets,
      totals.num_saves,
      totals.num_restores,
      totals.num_waits,
      totals.num_accepted,
      totals.num_verified);
  // The trace went where the trouble is.
  // Of a prefix only what has a checkpoint is hit.
  const int64_t at_least = has_states ? wanted / 200 : wanted / 20;
  EXPECT_GT(totals.num_hit_tokens, at_least);
  EXPECT_GT(totals.num_shared_blocks, at_least);
  EXPECT_GT(totals.num_preemptions, wanted / 500);
  EXPECT_EQ(totals.num_restores > wanted / 1000, has_states);
  EXPECT_EQ(totals.num_saves > wanted / 100, has_states);
  EXPECT_EQ(totals.num_waits > wanted / 100, has_states);
  EXPECT_EQ(totals.num_verified > wanted / 4, drafts);
  EXPECT_EQ(totals.num_accepted > wanted / 10, drafts);
  EXPECT_GT(totals.num_stopped, wanted / 200);
  EXPECT_GT(totals.num_length, wanted / 200);
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  constexpr const char* kPolicies[] = {"Fcfs", "Priority", "PrefillFirst"};
  const auto [policy, max_steps_in_flight, has_states, drafts] = info.param;
  return fmt::format("{}Lag{}{}{}",
                     kPolicies[static_cast<int>(policy)],
                     max_steps_in_flight,
                     has_states ? "WithStates" : "",
                     drafts ? "WithDrafts" : "");
}

const auto kAllPolicies = testing::Values(
    SchedulingPolicy::kFcfs, SchedulingPolicy::kPriority, SchedulingPolicy::kPrefillFirst);

INSTANTIATE_TEST_SUITE_P(All,
                         SchedulerTraceTest,
                         testing::Combine(kAllPolicies,
                                          testing::Values(1, 2, 3),
                                          testing::Bool(),
                                          testing::Values(false)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(
    Drafts,
    SchedulerTraceTest,
    testing::Combine(kAllPolicies, testing::Values(1), testing::Bool(), testing::Values(true)),
    case_name);

}  // namespace
}  // namespace atom
