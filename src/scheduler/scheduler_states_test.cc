// Models with recurrent states: slots, checkpoints, and prefixes that need both halves.
#include <gtest/gtest.h>

#include "scheduler/scheduler_test_support.h"

namespace atom {
namespace {

// Blocks of 4, checkpoints every 8 tokens.
SchedulerConfig config_with_slots(int32_t num_state_slots) {
  SchedulerConfig config = small_config();
  config.num_state_slots = num_state_slots;
  config.state_checkpoint_interval = 8;
  return config;
}

const ScheduledSequence& entry_of(const SchedulerOutput& output, SequenceId id) {
  for (const ScheduledSequence& scheduled : output.scheduled) {
    if (scheduled.id == id) return scheduled;
  }
  ADD_FAILURE() << "not scheduled: " << id;
  return output.scheduled.front();
}

// Steps until nothing is left.
void finish_all(Scheduler& scheduler) {
  for (int i = 0; i < 200 && scheduler.has_work(); ++i) run_step(scheduler);
  EXPECT_FALSE(scheduler.has_work());
}

TEST(SchedulerStates, EveryRunningSequenceHasASlotOfItsOwn) {
  Scheduler scheduler(config_with_slots(3), {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(3), ask_for(4)).ok());
  ASSERT_TRUE(scheduler.add(2, prompt_of(3, 2000), ask_for(4)).ok());
  const SchedulerOutput output = scheduler.schedule();
  const int32_t first = entry_of(output, 1).state_slots.at(0);
  const int32_t second = entry_of(output, 2).state_slots.at(0);
  EXPECT_GE(first, 0);
  EXPECT_GE(second, 0);
  EXPECT_NE(first, second);
  scheduler.postprocess(output, answer_to(output));
  // Named once.
  EXPECT_EQ(scheduler.schedule().scheduled[0].state_slots, std::vector<int32_t>());
}

TEST(SchedulerStates, RequestsWaitForASlotAndNothingIsLost) {
  Scheduler scheduler(config_with_slots(2), {kEosToken});
  for (SequenceId id = 1; id <= 4; ++id) {
    ASSERT_TRUE(scheduler.add(id, prompt_of(3, 1000 * id), ask_for(3)).ok());
  }
  EXPECT_EQ(ids_of(scheduler.schedule()), (std::vector<SequenceId>{1, 2}));
  EXPECT_EQ(scheduler.stats().num_waiting, 2);
  EXPECT_EQ(scheduler.stats().num_free_state_slots, 0);
  scheduler.reset();
  std::map<SequenceId, int> num_tokens;
  for (SequenceId id = 1; id <= 4; ++id) {
    ASSERT_TRUE(scheduler.add(id, prompt_of(3, 1000 * id), ask_for(3)).ok());
  }
  for (int i = 0; i < 50 && scheduler.has_work(); ++i) {
    for (const SequenceUpdate& update : run_step(scheduler)) {
      num_tokens[update.id] += static_cast<int>(update.token_ids.size());
    }
  }
  EXPECT_EQ(num_tokens, (std::map<SequenceId, int>{{1, 3}, {2, 3}, {3, 3}, {4, 3}}));
  EXPECT_EQ(scheduler.memory().slots().num_available(), 2);
}

TEST(SchedulerStates, APrefillStopsWhereACheckpointIsSaved) {
  Scheduler scheduler(config_with_slots(4), {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(11), ask_for(8)).ok());
  SchedulerOutput output = scheduler.schedule();
  EXPECT_EQ(output.scheduled[0].num_new_tokens, 8);
  ASSERT_EQ(output.state_saves.size(), 1u);
  EXPECT_EQ(output.state_saves[0].from, output.scheduled[0].state_slots.at(0));
  EXPECT_NE(output.state_saves[0].to, output.scheduled[0].state_slots.at(0));
  scheduler.postprocess(output, answer_to(output));
  output = scheduler.schedule();
  EXPECT_EQ(output.scheduled[0].num_new_tokens, 3);
  EXPECT_TRUE(output.state_saves.empty());
  scheduler.postprocess(output, answer_to(output));
  EXPECT_EQ(scheduler.stats().num_state_checkpoints, 1);
  // Decodes pass 16 tokens.
  size_t num_saves = 0;
  while (scheduler.has_work()) {
    output = scheduler.schedule();
    num_saves += output.state_saves.size();
    if (!output.empty()) scheduler.postprocess(output, answer_to(output));
  }
  EXPECT_EQ(num_saves, 1u);
  scheduler.schedule();
  EXPECT_EQ(scheduler.stats().num_state_checkpoints, 2);
}

TEST(SchedulerStates, APrefixIsTakenUpToItsLastCheckpoint) {
  Scheduler scheduler(config_with_slots(4), {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(15), ask_for(1)).ok());
  const SchedulerOutput first = scheduler.schedule();
  ASSERT_EQ(first.state_saves.size(), 1u);
  scheduler.postprocess(first, answer_to(first));
  finish_all(scheduler);
  // Three blocks are cached, but the state is known behind the second.
  EXPECT_EQ(scheduler.stats().num_cached_blocks, 3);
  ASSERT_TRUE(scheduler.add(2, prompt_of(16), ask_for(1)).ok());
  const SchedulerOutput output = scheduler.schedule();
  const ScheduledSequence& entry = entry_of(output, 2);
  EXPECT_EQ(entry.num_computed_tokens, 8);
  EXPECT_EQ(entry.new_block_ids.size(), 4u);
  ASSERT_EQ(output.state_restores.size(), 1u);
  EXPECT_EQ(output.state_restores[0].from, first.state_saves[0].to);
  EXPECT_EQ(output.state_restores[0].to, entry.state_slots.at(0));
  EXPECT_EQ(scheduler.stats().num_prefix_hit_tokens, 8);
}

TEST(SchedulerStates, ACheckpointIsNotUsedInTheStepThatSavesIt) {
  SchedulerConfig config = config_with_slots(4);
  config.max_num_batched_tokens = 32;
  Scheduler scheduler(config, {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(11), ask_for(2)).ok());
  ASSERT_TRUE(scheduler.add(2, prompt_of(11), ask_for(2)).ok());
  const SchedulerOutput output = scheduler.schedule();
  EXPECT_EQ(entry_of(output, 2).num_computed_tokens, 0);
  EXPECT_TRUE(output.state_restores.empty());
  scheduler.postprocess(output, answer_to(output));
  ASSERT_TRUE(scheduler.add(3, prompt_of(11), ask_for(2)).ok());
  EXPECT_EQ(entry_of(scheduler.schedule(), 3).num_computed_tokens, 8);
}

TEST(SchedulerStates, TheOnlySlotLeftIsContinuedInPlace) {
  Scheduler scheduler(config_with_slots(2), {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(9), ask_for(1)).ok());
  const SchedulerOutput first = scheduler.schedule();
  ASSERT_EQ(first.state_saves.size(), 1u);
  scheduler.postprocess(first, answer_to(first));
  finish_all(scheduler);
  ASSERT_TRUE(scheduler.add(2, prompt_of(3, 5000), ask_for(8)).ok());
  run_step(scheduler);
  ASSERT_TRUE(scheduler.add(3, prompt_of(9), ask_for(1)).ok());
  const SchedulerOutput output = scheduler.schedule();
  EXPECT_EQ(entry_of(output, 3).num_computed_tokens, 8);
  EXPECT_EQ(entry_of(output, 3).state_slots.at(0), first.state_saves[0].to);
  EXPECT_TRUE(output.state_restores.empty());
}

TEST(SchedulerStates, PreemptionFreesTheSlot) {
  SchedulerConfig config = config_with_slots(2);
  config.num_blocks = 6;
  config.max_model_len = 24;
  config.state_checkpoint_interval = 0;
  Scheduler scheduler(config, {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(4), ask_for(16)).ok());
  ASSERT_TRUE(scheduler.add(2, prompt_of(4, 2000), ask_for(16)).ok());
  for (int i = 0; i < 60 && scheduler.stats().num_preemptions == 0; ++i) run_step(scheduler);
  ASSERT_EQ(scheduler.stats().num_preemptions, 1);
  EXPECT_EQ(scheduler.stats().num_free_state_slots, 1);
  EXPECT_EQ(scheduler.find(2)->recurrent.slots, std::vector<int32_t>());
  finish_all(scheduler);
  EXPECT_EQ(scheduler.stats().num_free_state_slots, 2);
}

TEST(SchedulerStates, WithoutCheckpointsNoPrefixIsTaken) {
  SchedulerConfig config = config_with_slots(4);
  config.state_checkpoint_interval = 0;
  Scheduler scheduler(config, {kEosToken});
  ASSERT_TRUE(scheduler.add(1, prompt_of(12), ask_for(1)).ok());
  finish_all(scheduler);
  ASSERT_TRUE(scheduler.add(2, prompt_of(12), ask_for(1)).ok());
  EXPECT_EQ(scheduler.schedule().scheduled[0].num_computed_tokens, 0);
  EXPECT_EQ(scheduler.stats().num_prefix_hit_tokens, 0);
}

}  // namespace
}  // namespace atom
