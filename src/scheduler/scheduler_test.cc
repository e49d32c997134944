// What is admitted, and what a step computes.
#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "scheduler/scheduler_test_support.h"

namespace atom {
namespace {

void expect_error(const Status& status, StatusCode code, const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), code) << status.message();
  for (const std::string& part : parts) {
    EXPECT_NE(status.message().find(part), std::string::npos)
        << "'" << part << "' is not in: " << status.message();
  }
}

TEST(SchedulerAdmissionTest, RefusesAnEmptyPrompt) {
  Scheduler scheduler(small_config(), {kEosToken});
  expect_error(scheduler.add(1, {}, ask_for(4)), StatusCode::kInvalidArgument, {"empty"});
  EXPECT_FALSE(scheduler.has_work());
}

TEST(SchedulerAdmissionTest, RefusesAPromptThatLeavesNoRoom) {
  Scheduler scheduler(small_config(), {kEosToken});
  expect_error(
      scheduler.add(1, prompt_of(64), ask_for(4)), StatusCode::kInvalidArgument, {"64 tokens"});
  EXPECT_TRUE(scheduler.add(2, prompt_of(63), ask_for(4)).ok());
  EXPECT_TRUE(scheduler.add(3, prompt_of(64), ask_for(0)).ok());  // only scored
  EXPECT_FALSE(scheduler.add(4, prompt_of(65), ask_for(0)).ok());
}

TEST(SchedulerAdmissionTest, RefusesWhatCanNeverFitThePool) {
  SchedulerConfig config = small_config();
  config.num_blocks = 5;
  Scheduler scheduler(config, {kEosToken});
  expect_error(scheduler.add(1, prompt_of(12), ask_for(10)),
               StatusCode::kInvalidArgument,
               {"12 tokens", "up to 10", "6 KV blocks of 4", "pool has 5"});
  EXPECT_TRUE(scheduler.add(2, prompt_of(12), ask_for(9)).ok());  // the last token needs no KV
}

TEST(SchedulerAdmissionTest, RefusesAPromptLongerThanAStepWhenPrefillsAreWhole) {
  for (const bool prefill_first : {false, true}) {
    SchedulerConfig config = small_config();
    config.enable_chunked_prefill = prefill_first;
    if (prefill_first) config.policy = SchedulingPolicy::kPrefillFirst;
    Scheduler scheduler(config, {kEosToken});
    expect_error(scheduler.add(1, prompt_of(17), ask_for(4)),
                 StatusCode::kInvalidArgument,
                 {"17 tokens", "a step takes 16"});
    EXPECT_TRUE(scheduler.add(2, prompt_of(16), ask_for(4)).ok());
  }
}

TEST(SchedulerAdmissionTest, RefusesAnIdInUse) {
  Scheduler scheduler(small_config(), {kEosToken});
  EXPECT_TRUE(scheduler.add(7, prompt_of(3), ask_for(1)).ok());
  expect_error(scheduler.add(7, prompt_of(3), ask_for(1)), StatusCode::kInvalidArgument, {"id 7"});
  run_step(scheduler);
  run_step(scheduler);  // names it as finished
  EXPECT_TRUE(scheduler.add(7, prompt_of(3), ask_for(1)).ok());
}

TEST(SchedulerAdmissionTest, BoundsTheQueue) {
  SchedulerConfig config = small_config();
  config.max_num_seqs = 1;
  config.max_num_waiting = 2;
  Scheduler scheduler(config, {kEosToken});
  for (const SequenceId id : {1, 2, 3}) {
    EXPECT_TRUE(scheduler.add(id, prompt_of(3), ask_for(1)).ok());
  }
  expect_error(
      scheduler.add(4, prompt_of(3), ask_for(1)), StatusCode::kResourceExhausted, {"3 requests"});
  run_step(scheduler);  // finishes the first
  EXPECT_TRUE(scheduler.add(4, prompt_of(3), ask_for(1)).ok());
  expect_error(
      scheduler.add(5, prompt_of(3), ask_for(1)), StatusCode::kResourceExhausted, {"3 requests"});
}

TEST(SchedulerAdmissionTest, ClipsMaxTokensToTheModel) {
  Scheduler scheduler(small_config(), {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(60), ask_for(1'000'000'000)).ok());
  SchedulerOutput output = scheduler.schedule();
  ASSERT_EQ(output.new_sequences.size(), 1u);
  EXPECT_EQ(output.new_sequences[0].sampling.max_tokens, 4);
  EXPECT_EQ(output.new_sequences[0].prompt_token_ids, prompt_of(60));
  scheduler.postprocess(output, answer_to(output));
  int32_t num_tokens = 0;
  FinishReason reason = FinishReason::kNone;
  while (scheduler.has_unfinished()) {
    for (const SequenceUpdate& update : run_step(scheduler)) {
      num_tokens += static_cast<int32_t>(update.token_ids.size());
      reason = update.finish_reason;
    }
  }
  EXPECT_EQ(num_tokens, 4);
  EXPECT_EQ(reason, FinishReason::kLength);
}

TEST(SchedulerStepTest, DecodesGoFirstAndPrefillsTakeTheRest) {
  Scheduler scheduler(small_config(), {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(3, 100), ask_for(9)).ok());
  run_step(scheduler);
  ASSERT_TRUE(scheduler.add(2, prompt_of(20, 200), ask_for(9)).ok());
  ASSERT_TRUE(scheduler.add(3, prompt_of(2, 300), ask_for(9)).ok());

  SchedulerOutput output = scheduler.schedule();
  EXPECT_EQ(ids_of(output), (Ids{1, 2}));
  EXPECT_EQ(output.num_tokens, 16);
  EXPECT_EQ(output.scheduled[0].num_computed_tokens, 3);
  EXPECT_EQ(output.scheduled[0].num_new_tokens, 1);
  EXPECT_FALSE(output.scheduled[0].reset_block_table);
  EXPECT_EQ(output.scheduled[1].num_new_tokens, 15);
  EXPECT_TRUE(output.scheduled[1].reset_block_table);
  EXPECT_FALSE(output.scheduled[1].samples());
  EXPECT_EQ(scheduler.postprocess(output, answer_to(output)).size(), 1u);

  output = scheduler.schedule();
  EXPECT_EQ(ids_of(output), (Ids{1, 2, 3}));
  EXPECT_EQ(output.scheduled[1].num_computed_tokens, 15);
  EXPECT_EQ(output.scheduled[1].num_new_tokens, 5);
  EXPECT_TRUE(output.scheduled[1].samples());
  EXPECT_EQ(output.num_tokens, 8);
}

TEST(SchedulerStepTest, APrefillOfOneTokenStandsAmongTheDecodes) {
  Scheduler scheduler(small_config(), {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(3, 100), ask_for(9)).ok());
  ASSERT_TRUE(scheduler.add(2, prompt_of(1, 200), ask_for(9)).ok());
  EXPECT_EQ(ids_of(scheduler.schedule()), (Ids{2, 1}));
}

TEST(SchedulerStepTest, RunsNoMoreThanMaxNumSeqs) {
  Scheduler scheduler(small_config(), {kEosToken});
  for (SequenceId id = 1; id <= 6; ++id) {
    ASSERT_TRUE(scheduler.add(id, prompt_of(2, 100 * id), ask_for(2)).ok());
  }
  run_step(scheduler);
  EXPECT_EQ(scheduler.stats().num_running, 4);
  EXPECT_EQ(scheduler.stats().num_waiting, 2);
  run_step(scheduler);
  EXPECT_EQ(scheduler.stats().num_running, 0);
  EXPECT_EQ(ids_of(scheduler.schedule()), (Ids{5, 6}));
}

TEST(SchedulerStepTest, AWholePrefillWaitsForABudgetThatHoldsIt) {
  SchedulerConfig config = small_config();
  config.enable_chunked_prefill = false;
  Scheduler scheduler(config, {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(3, 100), ask_for(3)).ok());
  run_step(scheduler);
  ASSERT_TRUE(scheduler.add(2, prompt_of(16, 200), ask_for(3)).ok());
  for (int i = 0; i < 2; ++i) {
    const SchedulerOutput output = scheduler.schedule();
    EXPECT_EQ(ids_of(output), (Ids{1}));
    scheduler.postprocess(output, answer_to(output));
  }
  const SchedulerOutput output = scheduler.schedule();
  EXPECT_EQ(ids_of(output), (Ids{2}));
  EXPECT_EQ(output.scheduled[0].num_new_tokens, 16);
}

TEST(SchedulerStepTest, LongPromptsProgressSideBySide) {
  SchedulerConfig config = small_config();
  config.long_prefill_token_threshold = 5;
  Scheduler scheduler(config, {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(12, 100), ask_for(3)).ok());
  ASSERT_TRUE(scheduler.add(2, prompt_of(6, 200), ask_for(3)).ok());
  ASSERT_TRUE(scheduler.add(3, prompt_of(4, 300), ask_for(3)).ok());
  std::vector<std::vector<int32_t>> steps;
  for (int i = 0; i < 3; ++i) {
    const SchedulerOutput output = scheduler.schedule();
    std::map<SequenceId, int32_t> tokens;
    for (const ScheduledSequence& entry : output.scheduled) tokens[entry.id] = entry.num_new_tokens;
    steps.push_back({tokens[1], tokens[2], tokens[3]});
    scheduler.postprocess(output, answer_to(output));
  }
  EXPECT_EQ(steps, (std::vector<std::vector<int32_t>>{{5, 5, 4}, {5, 1, 1}, {2, 1, 1}}));
}

TEST(SchedulerStepTest, NothingIsScheduledBehindATokenThatHasToBeKnown) {
  SchedulerConfig config = small_config();
  config.max_steps_in_flight = 2;
  Scheduler scheduler(config, {kEosToken});
  SamplingParams sampling = ask_for(9);
  sampling.bad_word_ids = {{5, 6}};
  ASSERT_TRUE(scheduler.add(1, prompt_of(3, 100), sampling).ok());
  ASSERT_TRUE(scheduler.add(2, prompt_of(3, 200), ask_for(9)).ok());
  const SchedulerOutput first = scheduler.schedule();
  EXPECT_EQ(ids_of(first), (Ids{1, 2}));
  const SchedulerOutput ahead = scheduler.schedule();
  EXPECT_EQ(ids_of(ahead), (Ids{2}));
  scheduler.postprocess(first, answer_to(first));
  EXPECT_EQ(ids_of(scheduler.schedule()), (Ids{1, 2}));
}

TEST(SchedulerStepTest, StagesOfAPipelineHaveOtherSequences) {
  SchedulerConfig config = small_config();
  config.num_stages = config.max_steps_in_flight = 2;
  Scheduler scheduler(config, {kEosToken});
  for (const SequenceId id : {1, 2, 3, 4}) {
    ASSERT_TRUE(scheduler.add(id, prompt_of(3, 100 * static_cast<int32_t>(id)), ask_for(9)).ok());
  }
  SchedulerOutput older = scheduler.schedule();
  EXPECT_EQ(ids_of(older), (Ids{1, 2, 3, 4}));
  EXPECT_TRUE(scheduler.schedule().empty());
  scheduler.postprocess(older, answer_to(older));
  older = scheduler.schedule();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ids_of(older), (Ids{1, 2}));
    EXPECT_EQ(older.scheduled[0].told_token_ids, std::vector<int32_t>{kPlainToken});
    const SchedulerOutput newer = scheduler.schedule();
    EXPECT_EQ(ids_of(newer), (Ids{3, 4}));
    EXPECT_FALSE(scheduler.can_schedule());
    scheduler.postprocess(older, answer_to(older));
    older = scheduler.schedule();
    scheduler.postprocess(newer, answer_to(newer));
  }
}

TEST(SchedulerStepTest, PrefillFirstDoesNotMix) {
  SchedulerConfig config = small_config();
  config.policy = SchedulingPolicy::kPrefillFirst;
  Scheduler scheduler(config, {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(3, 100), ask_for(9)).ok());
  run_step(scheduler);
  ASSERT_TRUE(scheduler.add(2, prompt_of(10, 200), ask_for(9)).ok());
  ASSERT_TRUE(scheduler.add(3, prompt_of(10, 300), ask_for(9)).ok());
  for (const Ids& expected : {Ids{2}, Ids{3}, Ids{1, 2, 3}}) {
    const SchedulerOutput output = scheduler.schedule();
    EXPECT_EQ(ids_of(output), expected);
    scheduler.postprocess(output, answer_to(output));
  }
}

TEST(SchedulerStepTest, PriorityOrdersTheQueue) {
  SchedulerConfig config = small_config();
  config.policy = SchedulingPolicy::kPriority;
  config.max_num_seqs = 1;
  Scheduler scheduler(config, {kEosToken});
  for (const auto& [id, priority] :
       std::vector<std::pair<SequenceId, int32_t>>{{1, 5}, {2, 0}, {3, -1}, {4, 0}}) {
    SamplingParams sampling = ask_for(1);
    sampling.priority = priority;
    ASSERT_TRUE(scheduler.add(id, prompt_of(3, 100 * id), sampling).ok());
  }
  Ids order;
  while (scheduler.has_unfinished()) {
    for (const SequenceUpdate& update : run_step(scheduler)) order.push_back(update.id);
  }
  EXPECT_EQ(order, (Ids{3, 2, 4, 1}));
}

}  // namespace
}  // namespace atom
