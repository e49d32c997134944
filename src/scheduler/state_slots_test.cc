#include "scheduler/state_slots.h"

#include <gtest/gtest.h>

#include <set>

namespace atom {
namespace {

TEST(StateSlots, GivesEverySlotOnce) {
  StateSlots slots(3);
  EXPECT_EQ(slots.num_available(), 3);
  EXPECT_EQ((std::set<int32_t>{slots.take(), slots.take(), slots.take()}),
            (std::set<int32_t>{0, 1, 2}));
  EXPECT_EQ(slots.num_available(), 0);
  slots.release(1);
  EXPECT_EQ(slots.take(), 1);
}

TEST(StateSlots, CheckpointsGiveWayInTheOrderOfTheirLastUse) {
  StateSlots slots(3);
  for (const ContentId content : {10, 20, 30}) slots.keep(slots.take(), content);
  EXPECT_EQ(slots.num_available(), 3);
  EXPECT_EQ(slots.num_checkpoints(), 3);
  const int32_t used = slots.use_checkpoint(10);
  const int32_t kept = slots.use_checkpoint(30);
  EXPECT_NE(used, kept);
  slots.take();
  EXPECT_FALSE(slots.has_checkpoint(20));
  EXPECT_EQ(slots.take(), used);
  EXPECT_FALSE(slots.has_checkpoint(10));
  EXPECT_EQ(slots.use_checkpoint(30), kept);
}

TEST(StateSlots, UnusedSlotsGoFirst) {
  StateSlots slots(2);
  slots.keep(slots.take(), 10);
  slots.take();
  EXPECT_TRUE(slots.has_checkpoint(10));
  slots.take();
  EXPECT_FALSE(slots.has_checkpoint(10));
}

TEST(StateSlots, ASecondCheckpointOfTheSameContentIsNotKept) {
  StateSlots slots(2);
  const int32_t first = slots.take();
  const int32_t second = slots.take();
  slots.keep(first, 10);
  slots.keep(second, 10);
  EXPECT_EQ(slots.num_checkpoints(), 1);
  EXPECT_EQ(slots.use_checkpoint(10), first);
  EXPECT_EQ(slots.take(), second);
}

TEST(StateSlots, ResetForgetsEverything) {
  StateSlots slots(2);
  slots.keep(slots.take(), 10);
  slots.take();
  slots.reset();
  EXPECT_EQ(slots.num_available(), 2);
  EXPECT_FALSE(slots.has_checkpoint(10));
}

TEST(StateSlotsDeathTest, TakingFromAnEmptyPoolIsOurMistake) {
  StateSlots slots(1);
  slots.take();
  EXPECT_DEATH(slots.take(), "CHECK");
}

}  // namespace
}  // namespace atom
