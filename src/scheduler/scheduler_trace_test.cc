// Random traces of requests against the simulated runner, every invariant checked at every step.
// ATOM_SCHEDULER_TRACE_STEPS sets the number of steps of each case.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "scheduler/scheduler.h"
#include "scheduler/scheduler_trace_random.h"
#include "scheduler/scheduler_trace_totals.h"
#include "scheduler/simulated_model.h"
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
  Episode(const TraceCase& trace, uint64_t seed, TraceTotals& totals)
      : random_(seed),
        totals_(totals),
        config_(random_.config(trace)),
        scheduler_(config_, kEos),
        runner_(std::make_unique<SimulatedRunner>(config_, kEos, kTraceVocab)),
        add_percent_(random_.between(1, 60)),
        references_(config_.num_blocks) {
    random_.make_beginnings(config_.max_model_len);
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
        "{} slots {} interval {} drafts {} lookahead {} up to {} groups {} window {}",
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
        config_.speculative_disable_by_batch_size,
        config_.num_kv_groups,
        config_.kv_window);
  }

 private:
  inline static const std::vector<int32_t> kEos = {0, 7};

  void expect(bool condition, const char* what, uint64_t value = 0) {
    if (condition || !error_.empty()) return;
    error_ = fmt::format("{} {} (at step {})", what, value, steps_);
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
        config_.max_blocks_of_sequence(num_kv) > config_.num_blocks) {
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
        .prompt = random_.prompt(), .sampling = random_.sampling(), .answer = {}, .scored = {}};
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
    std::advance(victim, random_.between(0, static_cast<int32_t>(requests_.size()) - 1));
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
    runner_ = std::make_unique<SimulatedRunner>(config_, kEos, kTraceVocab);
    ++totals_.num_resets;
    check_pool();
  }

  // Some arrivals, as many steps scheduled as may be, one answered.
  void turn(bool draining) {
    if (!draining) {
      while (random_.percent(add_percent_) && requests_.size() < 40) add_request();
      if (random_.percent(2)) abort_request();
      if (random_.between(0, 4999) == 0) fail_engine();
    }
    while (scheduler_.can_schedule() && !random_.percent(10)) {
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
      check_given_back();
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
    random_.remember(request.prompt, request.answer);
    requests_.erase(found);
  }

  // What the model says with nothing shared, batched, preempted or ahead.
  void check_answer(const SequenceUpdate& update, const Request& request) {
    SamplingParams sampling = request.sampling;
    sampling.max_tokens = clipped_max_tokens(request);
    const auto [answer, reason] =
        simulated_model::whole_answer(request.prompt, sampling, kEos, kTraceVocab);
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
      check_blocks(*sequence);
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

  // Counts the blocks of a sequence: all that it may still need, and no others.
  void check_blocks(const Sequence& sequence) {
    const BlockTable& table = sequence.block_table;
    const int32_t num_groups = config_.num_kv_groups;
    int32_t num_behind = config_.num_blocks_behind(sequence.num_computed_tokens());
    expect(table.num_behind <= num_behind, "a window misses blocks", sequence.id());
    for (size_t i = 0; i < table.block_ids.size(); ++i) {
      const auto group = static_cast<int32_t>(i) % num_groups;
      const bool is_behind = static_cast<int32_t>(i) / num_groups < table.num_behind &&
                             config_.window_of_group(group) > 0;
      const int32_t block_id = table.block_ids[i];
      expect((block_id < 0) == is_behind, "a block given back too early or late", sequence.id());
      if (block_id >= 0) ++references_[block_id];
    }
    totals_.num_behind_windows += table.num_behind;
  }

  // Sequences that were not in the step that was just made hold nothing in vain.
  void check_given_back() {
    for (const auto& [id, request] : requests_) {
      const Sequence* sequence = scheduler_.find(id);
      if (sequence == nullptr || sequence->state() != SequenceState::kRunning) continue;
      const bool is_in_step = std::ranges::any_of(
          in_flight_.back().scheduled, [&](const auto& entry) { return entry.id == id; });
      if (is_in_step || in_flight_.back().scheduled.empty()) continue;
      const BlockTable& table = sequence->block_table;
      int32_t num_behind = config_.num_blocks_behind(sequence->num_computed_tokens());
      if (config_.enable_prefix_caching) num_behind = std::min(num_behind, table.num_registered);
      expect(table.num_behind == num_behind, "held behind a window", id);
    }
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

  TraceRandom random_;
  TraceTotals& totals_;
  const SchedulerConfig config_;
  Scheduler scheduler_;
  std::unique_ptr<SimulatedRunner> runner_;
  const int32_t add_percent_;
  std::vector<int32_t> references_;
  std::map<SequenceId, Request> requests_;
  std::deque<SchedulerOutput> in_flight_;
  SequenceId next_id_ = 1;
  int64_t steps_ = 0;
  int64_t drain_deadline_ = 0;
  std::string error_;
};

// Policy, steps in flight, whether the model has states, and a window, whether there are drafts,
// and whether the steps are in stages of a pipeline.
using Case = std::tuple<SchedulingPolicy, int32_t, bool, bool, bool, bool>;

class SchedulerTraceTest : public testing::TestWithParam<Case> {};

TEST_P(SchedulerTraceTest, HoldsEveryInvariantAtEveryStep) {
  const TraceCase trace = std::make_from_tuple<TraceCase>(GetParam());
  const bool has_states = trace.has_states, drafts = trace.drafts;
  const int64_t wanted = num_steps_wanted(has_states || drafts || trace.has_window);
  TraceTotals totals;
  for (uint64_t episode = 0; totals.num_steps < wanted; ++episode) {
    const uint64_t seed =
        episode * 1000 + static_cast<uint64_t>(trace.policy) * 10 + trace.max_steps_in_flight;
    Episode run(trace, seed, totals);
    run.run();
    ASSERT_EQ(run.error(), "") << "seed " << seed << ", " << run.describe();
  }
  fmt::print("{}\n", totals.to_string());
  // The trace went where the trouble is.
  // A prefix is hit only up to a checkpoint.
  const int64_t at_least = has_states ? wanted / (trace.is_pipeline ? 500 : 200) : wanted / 20;
  EXPECT_GT(totals.num_hit_tokens, at_least);
  EXPECT_GT(totals.num_shared_blocks, at_least);
  EXPECT_GT(totals.num_preemptions, wanted / 500);
  EXPECT_EQ(totals.num_behind_windows > wanted / 2, trace.has_window);
  EXPECT_EQ(totals.num_restores > wanted / 1000, has_states);
  EXPECT_EQ(totals.num_saves > wanted / 100, has_states);
  EXPECT_EQ(totals.num_waits > wanted / 100, has_states);
  EXPECT_EQ(totals.num_verified > wanted / 4, drafts);
  EXPECT_EQ(totals.num_accepted > wanted / 10, drafts);
  EXPECT_GT(totals.num_stopped, wanted / 200);
  EXPECT_GT(totals.num_length, wanted / 200);
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return trace_name(std::make_from_tuple<TraceCase>(info.param));
}

const auto kAllPolicies = testing::Values(
    SchedulingPolicy::kFcfs, SchedulingPolicy::kPriority, SchedulingPolicy::kPrefillFirst);

const auto kOff = testing::Values(false);
const auto kOn = testing::Values(true);

auto cases(const auto& lags,
           const auto& has_states,
           const auto& has_window,
           const auto& drafts,
           bool is_pipeline) {
  return testing::Combine(
      kAllPolicies, lags, has_states, has_window, drafts, testing::Values(is_pipeline));
}

INSTANTIATE_TEST_SUITE_P(All,
                         SchedulerTraceTest,
                         cases(testing::Values(1, 2, 3), testing::Bool(), kOff, kOff, false),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Windows,
                         SchedulerTraceTest,
                         cases(testing::Values(1, 2, 3), kOff, kOn, kOff, false),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Drafts,
                         SchedulerTraceTest,
                         cases(testing::Values(1), testing::Bool(), testing::Bool(), kOn, false),
                         case_name);
INSTANTIATE_TEST_SUITE_P(
    Pipeline,
    SchedulerTraceTest,
    cases(testing::Values(2, 3), testing::Values(true), kOff, testing::Bool(), true),
    case_name);
INSTANTIATE_TEST_SUITE_P(PipelineOfWindows,
                         SchedulerTraceTest,
                         cases(testing::Values(3), kOff, kOn, testing::Bool(), true),
                         case_name);

}  // namespace
}  // namespace atom
