#include <gtest/gtest.h>

#include <vector>

#include "scheduler/scheduler.h"
#include "scheduler/scheduler_test_support.h"

namespace atom {
namespace {

// Five blocks of four tokens; two prompts of seven tokens hold two blocks each. The first decode of
// each still fits, then each wants a third block.
class SchedulerPreemptionTest : public testing::Test {
 protected:
  static SchedulerConfig config(int32_t max_steps_in_flight = 1) {
    SchedulerConfig config = small_config();
    config.num_blocks = 5;
    config.max_steps_in_flight = max_steps_in_flight;
    return config;
  }

  static void add_pair(Scheduler& scheduler, int32_t priority_of_first = 0) {
    SamplingParams sampling = ask_for(9);
    sampling.priority = priority_of_first;
    ASSERT_TRUE(scheduler.add(1, prompt_of(7, 100), sampling).ok());
    ASSERT_TRUE(scheduler.add(2, prompt_of(7, 200), ask_for(9)).ok());
  }
};

TEST_F(SchedulerPreemptionTest, TheLastInGoesOutAndComesBackWithItsTokens) {
  Scheduler scheduler(config(), {kEosToken});
  add_pair(scheduler);
  run_step(scheduler, {{2, 51}});
  run_step(scheduler, {{2, 52}});
  SchedulerOutput output = scheduler.schedule();  // 1 takes the fifth block, 2 finds none
  EXPECT_EQ(ids_of(output), (Ids{1}));
  EXPECT_EQ(scheduler.stats().num_preemptions, 1);
  EXPECT_EQ(scheduler.stats().num_waiting, 1);
  EXPECT_EQ(scheduler.find(2)->state(), SequenceState::kPreempted);
  scheduler.postprocess(output, answer_to(output, {{1, kEosToken}}));

  output = scheduler.schedule();
  ASSERT_EQ(ids_of(output), (Ids{2}));
  EXPECT_TRUE(output.new_sequences.empty());  // the runner kept its tokens
  const ScheduledSequence& resumed = output.scheduled[0];
  EXPECT_TRUE(resumed.reset_block_table);
  EXPECT_EQ(resumed.num_computed_tokens, 8);  // its own blocks, still cached, one token sampled
  EXPECT_EQ(resumed.num_new_tokens, 1);
  EXPECT_TRUE(resumed.samples());
  EXPECT_EQ(resumed.new_block_ids.size(), 3u);
  // A resumption is no new request to the prefix cache.
  EXPECT_EQ(scheduler.stats().num_prefix_query_tokens, 14);
  EXPECT_EQ(scheduler.stats().num_prefix_hit_tokens, 0);
}

TEST_F(SchedulerPreemptionTest, GoesToTheFrontOfTheQueue) {
  Scheduler scheduler(config(), {kEosToken});
  add_pair(scheduler);
  run_step(scheduler);
  ASSERT_TRUE(scheduler.add(3, prompt_of(2, 300), ask_for(9)).ok());
  run_step(scheduler);
  EXPECT_EQ(scheduler.find(3)->state(), SequenceState::kWaiting);
  SchedulerOutput output = scheduler.schedule();
  EXPECT_EQ(scheduler.find(2)->state(), SequenceState::kPreempted);
  scheduler.postprocess(output, answer_to(output, {{1, kEosToken}}));
  output = scheduler.schedule();
  ASSERT_FALSE(output.scheduled.empty());
  EXPECT_EQ(output.scheduled[0].id, 2u);
}

TEST_F(SchedulerPreemptionTest, UnderPriorityTheLowestGoesOut) {
  SchedulerConfig priority_config = config();
  priority_config.policy = SchedulingPolicy::kPriority;
  Scheduler scheduler(priority_config, {kEosToken});
  add_pair(scheduler, /*priority_of_first=*/3);
  run_step(scheduler);
  run_step(scheduler);
  EXPECT_EQ(ids_of(scheduler.schedule()), (Ids{2}));
  EXPECT_EQ(scheduler.find(1)->state(), SequenceState::kPreempted);
}

TEST_F(SchedulerPreemptionTest, ResumesOnlyWhenNothingIsInFlight) {
  Scheduler scheduler(config(3), {kEosToken});
  add_pair(scheduler);
  const SchedulerOutput first = scheduler.schedule();
  const SchedulerOutput second = scheduler.schedule();
  EXPECT_EQ(ids_of(second), (Ids{1, 2}));
  const SchedulerOutput third = scheduler.schedule();
  EXPECT_EQ(ids_of(third), (Ids{1}));
  EXPECT_EQ(scheduler.find(2)->num_pending_tokens(), 2);
  EXPECT_TRUE(scheduler.abort(1));
  scheduler.postprocess(first, answer_to(first, {{2, 51}}));
  const SchedulerOutput fourth = scheduler.schedule();  // room enough, but one token is not known
  EXPECT_EQ(fourth.finished, (Ids{1}));
  EXPECT_TRUE(fourth.scheduled.empty());
  const std::vector<SequenceUpdate> updates =
      scheduler.postprocess(second, answer_to(second, {{2, 52}}));
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(updates[0].token_ids, (std::vector<int32_t>{52}));
  const SchedulerOutput fifth = scheduler.schedule();
  ASSERT_EQ(ids_of(fifth), (Ids{2}));
  EXPECT_EQ(fifth.scheduled[0].num_computed_tokens + fifth.scheduled[0].num_new_tokens, 9);
}

TEST_F(SchedulerPreemptionTest, APreemptedSequenceMayStopOnATokenInFlight) {
  Scheduler scheduler(config(2), {kEosToken});
  add_pair(scheduler);
  const SchedulerOutput first = scheduler.schedule();
  const SchedulerOutput second = scheduler.schedule();
  scheduler.postprocess(first, answer_to(first));
  const SchedulerOutput third = scheduler.schedule();
  EXPECT_EQ(scheduler.find(2)->state(), SequenceState::kPreempted);
  const std::vector<SequenceUpdate> updates =
      scheduler.postprocess(second, answer_to(second, {{2, kEosToken}}));
  ASSERT_EQ(updates.size(), 2u);
  EXPECT_EQ(updates[1].finish_reason, FinishReason::kStop);
  EXPECT_EQ(scheduler.stats().num_waiting, 0);
  EXPECT_EQ(scheduler.schedule().finished, (Ids{2}));
}

TEST_F(SchedulerPreemptionTest, ARecomputationLongerThanAStepIsSplit) {
  SchedulerConfig whole = config();
  whole.enable_chunked_prefill = false;
  whole.enable_prefix_caching = false;
  whole.max_num_batched_tokens = 7;
  Scheduler scheduler(whole, {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(4, 100), ask_for(13)).ok());
  ASSERT_TRUE(scheduler.add(2, prompt_of(4, 200), ask_for(13)).ok());
  std::vector<int32_t> chunks;
  for (int step = 0; step < 40 && scheduler.has_unfinished(); ++step) {
    const SchedulerOutput output = scheduler.schedule();
    for (const ScheduledSequence& scheduled : output.scheduled) {
      if (scheduled.id == 2 && scheduled.num_new_tokens > 1) {
        chunks.push_back(scheduled.num_new_tokens);
      }
    }
    scheduler.postprocess(output, answer_to(output));
  }
  EXPECT_FALSE(scheduler.has_unfinished());
  EXPECT_EQ(scheduler.stats().num_preemptions, 1);
  EXPECT_EQ(chunks, (std::vector<int32_t>{4, 7, 2}));
}

}  // namespace
}  // namespace atom
