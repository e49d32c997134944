#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "scheduler/scheduler_test_support.h"

namespace atom {
namespace {

using testing::Test;
using Ids = std::vector<SequenceId>;

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

TEST(SchedulerStopTest, EosStopTokensAndIgnoreEos) {
  Scheduler scheduler(small_config(), {kEosToken, 3});
  ASSERT_TRUE(scheduler.add(1, prompt_of(3, 100), ask_for(9)).ok());
  SamplingParams sampling = ask_for(9);
  sampling.ignore_eos = true;
  sampling.stop_token_ids = {50};
  ASSERT_TRUE(scheduler.add(2, prompt_of(3, 200), sampling).ok());

  std::vector<SequenceUpdate> updates = run_step(scheduler, {{1, 3}, {2, 3}});
  ASSERT_EQ(updates.size(), 2u);
  EXPECT_EQ(updates[0].finish_reason, FinishReason::kStop);
  EXPECT_EQ(updates[0].stop_token_id, 3);
  EXPECT_EQ(updates[0].token_ids, (std::vector<int32_t>{3}));
  EXPECT_EQ(updates[1].finish_reason, FinishReason::kNone);
  EXPECT_FALSE(updates[1].stop_token_id.has_value());

  updates = run_step(scheduler, {{2, 50}});
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(updates[0].finish_reason, FinishReason::kStop);
  EXPECT_EQ(updates[0].stop_token_id, 50);
}

TEST(SchedulerStopTest, NoEndTokenCountsBeforeMinTokens) {
  Scheduler scheduler(small_config(), {kEosToken});
  SamplingParams sampling = ask_for(9);
  sampling.min_tokens = 2;
  ASSERT_TRUE(scheduler.add(1, prompt_of(3), sampling).ok());
  EXPECT_EQ(run_step(scheduler, {{1, kEosToken}})[0].finish_reason, FinishReason::kNone);
  EXPECT_EQ(run_step(scheduler, {{1, kEosToken}})[0].finish_reason, FinishReason::kNone);
  EXPECT_EQ(run_step(scheduler, {{1, kEosToken}})[0].finish_reason, FinishReason::kStop);
}

TEST(SchedulerStopTest, AStopAtTheLengthIsAStop) {
  Scheduler scheduler(small_config(), {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(3), ask_for(1)).ok());
  EXPECT_EQ(run_step(scheduler, {{1, kEosToken}})[0].finish_reason, FinishReason::kStop);
}

TEST(SchedulerStopTest, MaxTokensZeroScoresThePrompt) {
  Scheduler scheduler(small_config(), {kEosToken});
  SamplingParams sampling = ask_for(0);
  sampling.prompt_logprobs = 0;
  ASSERT_TRUE(scheduler.add(1, prompt_of(20), sampling).ok());
  std::vector<int32_t> scored;
  for (int step = 0; step < 2; ++step) {
    const SchedulerOutput output = scheduler.schedule();
    ASSERT_EQ(output.scheduled.size(), 1u);
    const ScheduledSequence& scheduled = output.scheduled[0];
    EXPECT_FALSE(scheduled.samples());
    ModelRunnerOutput answer = answer_to(output);
    for (int32_t i = 1; i <= scheduled.num_new_tokens; ++i) {
      const int32_t position = scheduled.num_computed_tokens + i;
      if (position < 20) answer.sequences[0].prompt_logprobs.push_back({{.token_id = position}});
    }
    const std::vector<SequenceUpdate> updates = scheduler.postprocess(output, std::move(answer));
    ASSERT_EQ(updates.size(), 1u);
    EXPECT_TRUE(updates[0].token_ids.empty());
    for (const TokenLogprobs& logprobs : updates[0].prompt_logprobs) {
      scored.push_back(logprobs[0].token_id);
    }
    EXPECT_EQ(updates[0].finish_reason, step == 0 ? FinishReason::kNone : FinishReason::kLength);
  }
  EXPECT_EQ(scored, prompt_of(19, 1));
}

TEST(SchedulerPrefixTest, AHitIsSkippedAndCounted) {
  Scheduler scheduler(small_config(), {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(12), ask_for(1)).ok());
  EXPECT_EQ(run_step(scheduler)[0].num_cached_prompt_tokens, 0);
  ASSERT_TRUE(scheduler.add(2, prompt_of(12), ask_for(1)).ok());
  const SchedulerOutput output = scheduler.schedule();
  EXPECT_EQ(output.finished, (Ids{1}));
  ASSERT_EQ(output.scheduled.size(), 1u);
  EXPECT_EQ(output.scheduled[0].num_computed_tokens, 8);
  EXPECT_EQ(output.scheduled[0].num_new_tokens, 4);
  EXPECT_EQ(output.scheduled[0].new_block_ids.size(), 3u);
  EXPECT_EQ(scheduler.postprocess(output, answer_to(output))[0].num_cached_prompt_tokens, 8);
  EXPECT_EQ(scheduler.stats().num_prefix_query_tokens, 24);
  EXPECT_EQ(scheduler.stats().num_prefix_hit_tokens, 8);
}

TEST(SchedulerPrefixTest, SequencesOfOneStepShare) {
  Scheduler scheduler(small_config(), {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(9), ask_for(4)).ok());
  ASSERT_TRUE(scheduler.add(2, prompt_of(10), ask_for(4)).ok());
  const SchedulerOutput output = scheduler.schedule();
  ASSERT_EQ(ids_of(output), (Ids{1, 2}));
  EXPECT_EQ(output.scheduled[1].num_computed_tokens, 8);
  EXPECT_EQ(output.scheduled[1].num_new_tokens, 2);
  EXPECT_EQ(output.scheduled[0].new_block_ids[0], output.scheduled[1].new_block_ids[0]);
}

TEST(SchedulerPrefixTest, SampledTokensAreSharedOnceKnown) {
  SchedulerConfig config = small_config();
  config.max_steps_in_flight = 2;
  Scheduler scheduler(config, {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(3), ask_for(9)).ok());
  const SchedulerOutput prefill = scheduler.schedule();
  const SchedulerOutput decode = scheduler.schedule();  // completes block 0 with an unknown token
  EXPECT_EQ(scheduler.stats().num_cached_blocks, 0);
  scheduler.postprocess(prefill, answer_to(prefill, {{1, 77}}));
  EXPECT_EQ(scheduler.stats().num_cached_blocks, 1);
  std::vector<int32_t> prompt = prompt_of(3);
  prompt.insert(prompt.end(), {77, 5});
  ASSERT_TRUE(scheduler.add(2, prompt, ask_for(9)).ok());
  const SchedulerOutput output = scheduler.schedule();
  ASSERT_EQ(output.scheduled.size(), 2u);
  EXPECT_EQ(output.scheduled[1].id, 2u);
  EXPECT_EQ(output.scheduled[1].num_computed_tokens, 4);
}

TEST(SchedulerPrefixTest, PromptLogprobsTakeNoHit) {
  Scheduler scheduler(small_config(), {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(12), ask_for(1)).ok());
  run_step(scheduler);
  SamplingParams sampling = ask_for(1);
  sampling.prompt_logprobs = 0;
  ASSERT_TRUE(scheduler.add(2, prompt_of(12), sampling).ok());
  const SchedulerOutput output = scheduler.schedule();
  EXPECT_EQ(output.scheduled[0].num_computed_tokens, 0);
  EXPECT_EQ(output.scheduled[0].num_new_tokens, 12);
}

TEST(SchedulerLagTest, SchedulesAheadOfUnknownTokens) {
  SchedulerConfig config = small_config();
  config.max_steps_in_flight = 2;
  Scheduler scheduler(config, {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(3), ask_for(9)).ok());
  const SchedulerOutput prefill = scheduler.schedule();
  const SchedulerOutput decode = scheduler.schedule();
  EXPECT_FALSE(scheduler.can_schedule());
  ASSERT_EQ(decode.scheduled.size(), 1u);
  EXPECT_EQ(decode.scheduled[0].num_computed_tokens, 3);
  EXPECT_TRUE(decode.scheduled[0].samples());
  EXPECT_EQ(decode.step, prefill.step + 1);
  EXPECT_EQ(scheduler.postprocess(prefill, answer_to(prefill))[0].token_ids.size(), 1u);
  EXPECT_TRUE(scheduler.can_schedule());
}

TEST(SchedulerLagTest, AnswersAfterAStopAreDroppedAndTheIdIsNamedOnce) {
  SchedulerConfig config = small_config();
  config.max_steps_in_flight = 2;
  Scheduler scheduler(config, {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(3), ask_for(9)).ok());
  const SchedulerOutput first = scheduler.schedule();
  const SchedulerOutput second = scheduler.schedule();
  EXPECT_EQ(scheduler.postprocess(first, answer_to(first, {{1, kEosToken}}))[0].finish_reason,
            FinishReason::kStop);
  EXPECT_EQ(scheduler.stats().num_free_blocks, config.num_blocks);
  EXPECT_FALSE(scheduler.has_unfinished());
  EXPECT_TRUE(scheduler.has_work());
  const SchedulerOutput third = scheduler.schedule();
  EXPECT_TRUE(third.scheduled.empty());
  EXPECT_EQ(third.finished, (Ids{1}));
  EXPECT_TRUE(scheduler.postprocess(second, answer_to(second)).empty());
  EXPECT_TRUE(scheduler.postprocess(third, answer_to(third)).empty());
  EXPECT_FALSE(scheduler.has_work());
  EXPECT_TRUE(scheduler.schedule().empty());
  EXPECT_EQ(scheduler.find(1), nullptr);
}

TEST(SchedulerLagTest, NothingIsScheduledPastMaxTokens) {
  SchedulerConfig config = small_config();
  config.max_steps_in_flight = 3;
  Scheduler scheduler(config, {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(3), ask_for(2)).ok());
  const SchedulerOutput first = scheduler.schedule();
  const SchedulerOutput second = scheduler.schedule();
  EXPECT_TRUE(scheduler.schedule().empty());
  EXPECT_EQ(scheduler.num_steps_in_flight(), 2);
  scheduler.postprocess(first, answer_to(first));
  EXPECT_EQ(scheduler.postprocess(second, answer_to(second))[0].finish_reason,
            FinishReason::kLength);
}

TEST(SchedulerStopTest, ASequenceTheRunnerCannotSampleEndsAlone) {
  SchedulerConfig config = small_config();
  config.max_steps_in_flight = 2;
  Scheduler scheduler(config, {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(3, 100), ask_for(9)).ok());
  ASSERT_TRUE(scheduler.add(2, prompt_of(3, 200), ask_for(9)).ok());
  const SchedulerOutput first = scheduler.schedule();
  const SchedulerOutput second = scheduler.schedule();
  for (const SchedulerOutput* output : {&first, &second}) {
    ModelRunnerOutput answer = answer_to(*output);
    answer.sequences[0].token_ids.clear();
    answer.sequences[0].error = "no finite logit";
    const std::vector<SequenceUpdate> updates = scheduler.postprocess(*output, std::move(answer));
    if (output == &first) {
      ASSERT_EQ(updates.size(), 2u);
      EXPECT_EQ(updates[0].finish_reason, FinishReason::kError);
      EXPECT_EQ(updates[0].error, "no finite logit");
      EXPECT_TRUE(updates[0].token_ids.empty());
    } else {
      ASSERT_EQ(updates.size(), 1u);
    }
    EXPECT_EQ(updates.back().id, 2u);
    EXPECT_EQ(updates.back().token_ids.size(), 1u);
  }
  EXPECT_EQ(scheduler.stats().num_free_blocks, config.num_blocks - 1);
  EXPECT_EQ(scheduler.schedule().finished, (Ids{1}));
}

TEST(SchedulerAbortTest, WhereverTheSequenceIs) {
  SchedulerConfig config = small_config();
  config.max_steps_in_flight = 2;
  config.max_num_seqs = 1;
  Scheduler scheduler(config, {kEosToken});
  EXPECT_FALSE(scheduler.abort(1));
  ASSERT_TRUE(scheduler.add(1, prompt_of(3), ask_for(9)).ok());
  ASSERT_TRUE(scheduler.add(2, prompt_of(3), ask_for(9)).ok());
  const SchedulerOutput first = scheduler.schedule();
  EXPECT_TRUE(scheduler.abort(2));  // the runner never heard of it
  EXPECT_EQ(scheduler.find(2), nullptr);
  EXPECT_TRUE(scheduler.abort(1));
  EXPECT_FALSE(scheduler.abort(1));
  EXPECT_EQ(scheduler.stats().num_free_blocks, config.num_blocks);
  const SchedulerOutput second = scheduler.schedule();
  EXPECT_EQ(second.finished, (Ids{1}));
  EXPECT_TRUE(scheduler.postprocess(first, answer_to(first)).empty());
  EXPECT_TRUE(scheduler.postprocess(second, answer_to(second)).empty());
  EXPECT_FALSE(scheduler.has_work());
}

TEST(SchedulerResetTest, NamesTheUnfinishedAndStartsAfresh) {
  SchedulerConfig config = small_config();
  config.max_steps_in_flight = 2;
  config.max_num_seqs = 1;
  Scheduler scheduler(config, {kEosToken});
  ASSERT_TRUE(scheduler.add(4, prompt_of(9), ask_for(9)).ok());
  ASSERT_TRUE(scheduler.add(2, prompt_of(9), ask_for(9)).ok());
  scheduler.schedule();
  EXPECT_EQ(scheduler.reset(), (Ids{4, 2}));
  EXPECT_FALSE(scheduler.has_work());
  EXPECT_EQ(scheduler.num_steps_in_flight(), 0);
  EXPECT_EQ(scheduler.stats().num_free_blocks, config.num_blocks);
  ASSERT_TRUE(scheduler.add(4, prompt_of(9), ask_for(9)).ok());
  const SchedulerOutput output = scheduler.schedule();
  ASSERT_EQ(output.new_sequences.size(), 1u);
  EXPECT_EQ(output.scheduled[0].num_computed_tokens, 0);
}

}  // namespace
}  // namespace atom
