// What answers make of sequences: their ends, shared prefixes, and steps scheduled ahead.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "scheduler/scheduler.h"
#include "scheduler/scheduler_test_support.h"

namespace atom {
namespace {

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

// Answers the step; sequence 1 has to rest for so many steps then.
void answer_with_rest(Scheduler* scheduler, const SchedulerOutput& output, uint64_t num_steps) {
  ModelRunnerOutput answer = answer_to(output);
  for (SequenceOutput& sequence : answer.sequences) {
    if (sequence.id == 1) sequence.num_steps_to_rest = num_steps;
  }
  scheduler->postprocess(output, std::move(answer));
}

TEST(SchedulerRestTest, ASequenceRestsAsLongAsOthersGoOn) {
  for (const SchedulingPolicy policy : {SchedulingPolicy::kFcfs, SchedulingPolicy::kPrefillFirst}) {
    SchedulerConfig config = small_config();
    config.policy = policy;
    Scheduler scheduler(config, {kEosToken});
    ASSERT_TRUE(scheduler.add(1, prompt_of(3, 100), ask_for(20)).ok());
    ASSERT_TRUE(scheduler.add(2, prompt_of(3, 200), ask_for(7)).ok());
    answer_with_rest(&scheduler, scheduler.schedule(), 3);
    std::vector<Ids> steps;
    for (int i = 0; i < 10; ++i) {
      const SchedulerOutput output = scheduler.schedule();
      steps.push_back(ids_of(output));
      answer_with_rest(&scheduler, output, 3);
    }
    // Sequence 2 has its last token after six steps; alone nobody rests.
    EXPECT_EQ(steps, (std::vector<Ids>{{2}, {2}, {2}, {1, 2}, {2}, {2}, {1}, {1}, {1}, {1}}));
    EXPECT_EQ(scheduler.stats().num_running, 1);
  }
}

TEST(SchedulerRestTest, ASequenceThatRestsCanBeAborted) {
  Scheduler scheduler(small_config(), {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(3, 100), ask_for(20)).ok());
  ASSERT_TRUE(scheduler.add(2, prompt_of(3, 200), ask_for(20)).ok());
  answer_with_rest(&scheduler, scheduler.schedule(), 1'000);
  EXPECT_EQ(ids_of(scheduler.schedule()), (Ids{2}));
  EXPECT_TRUE(scheduler.abort(1));
  EXPECT_EQ(scheduler.stats().num_running, 1);
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
