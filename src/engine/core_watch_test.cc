#include "engine/core_watch.h"

#include <gtest/gtest.h>

namespace atom {
namespace {

using std::chrono::milliseconds;
using Verdict = CoreWatch::Verdict;

SupervisionConfig limits() {
  SupervisionConfig config;
  config.hang_timeout = 1;
  config.step_timeout = 3;
  return config;
}

// A watch and a clock that moves when told.
class CoreWatchTest : public ::testing::Test {
 protected:
  void hear(const CoreResponse& response) { watch_.heard(response, now_); }
  void beat(uint64_t in_flight, uint64_t progress) {
    hear(CoreHeartbeat{++num_ticks_, 0, in_flight, progress});
  }
  // Lets time pass in ticks of 10 ms; the last verdict.
  Verdict pass(milliseconds duration) {
    Verdict verdict = Verdict::kFine;
    for (milliseconds passed{0}; passed < duration; passed += milliseconds(10)) {
      now_ += milliseconds(10);
      verdict = watch_.tick(now_);
    }
    return verdict;
  }
  // The same while the core sends heartbeats.
  Verdict pass_beating(milliseconds duration, uint64_t in_flight, uint64_t progress) {
    Verdict verdict = Verdict::kFine;
    for (milliseconds passed{0}; passed < duration; passed += milliseconds(20)) {
      verdict = pass(milliseconds(20));
      if (verdict != Verdict::kFine) return verdict;
      beat(in_flight, progress);
    }
    return verdict;
  }

  CoreWatch::Clock::time_point now_{std::chrono::hours(1)};
  CoreWatch watch_{limits(), now_};
  uint64_t num_ticks_ = 0;
};

TEST_F(CoreWatchTest, SilenceIsSeenThenFatal) {
  hear(CoreReady{});
  EXPECT_EQ(pass(milliseconds(70)), Verdict::kFine);
  EXPECT_EQ(pass(milliseconds(10)), Verdict::kSilent);
  EXPECT_EQ(pass(milliseconds(900)), Verdict::kSilent);
  EXPECT_EQ(pass(milliseconds(50)), Verdict::kHung);
}

TEST_F(CoreWatchTest, AnyWordEndsSilence) {
  hear(CoreReady{});
  for (const CoreResponse& word : {CoreResponse(CoreHeartbeat{}), CoreResponse(StepOutput{})}) {
    EXPECT_EQ(pass(milliseconds(500)), Verdict::kSilent);
    hear(word);
    EXPECT_EQ(watch_.tick(now_), Verdict::kFine);
    EXPECT_EQ(pass(milliseconds(70)), Verdict::kFine);
  }
}

TEST_F(CoreWatchTest, SilenceIsMeasuredFromTheWordNotFromTheTickBefore) {
  hear(CoreReady{});
  watch_.tick(now_);
  now_ += milliseconds(40);
  hear(CoreHeartbeat{});
  EXPECT_EQ(watch_.tick(now_), Verdict::kFine);
  EXPECT_EQ(pass(milliseconds(70)), Verdict::kFine);
  EXPECT_EQ(pass(milliseconds(10)), Verdict::kSilent);
}

TEST_F(CoreWatchTest, LoadingMayBeSilentForTheStepTimeout) {
  EXPECT_EQ(pass(milliseconds(2900)), Verdict::kFine);
  hear(CoreLoading{LoadingStage::kWeights, 1, 2});
  EXPECT_EQ(pass(milliseconds(2900)), Verdict::kFine);
  EXPECT_EQ(pass(milliseconds(200)), Verdict::kHung);
}

TEST_F(CoreWatchTest, TheWatchersOwnAbsenceIsNoSilence) {
  hear(CoreReady{});
  EXPECT_EQ(pass(milliseconds(20)), Verdict::kFine);
  now_ += std::chrono::hours(10);
  EXPECT_EQ(watch_.tick(now_), Verdict::kFine);
  EXPECT_EQ(pass(milliseconds(20)), Verdict::kSilent);
}

TEST_F(CoreWatchTest, AnIdleCoreIsNeverStuck) {
  hear(CoreReady{});
  EXPECT_EQ(pass_beating(milliseconds(10000), 0, 7), Verdict::kFine);
  EXPECT_EQ(watch_.last_progress(), now_);
}

TEST_F(CoreWatchTest, AStepWithoutProgressIsStuck) {
  hear(CoreReady{});
  EXPECT_EQ(pass_beating(milliseconds(2000), 0, 7), Verdict::kFine);
  EXPECT_EQ(pass_beating(milliseconds(2900), 1, 7), Verdict::kFine);
  EXPECT_EQ(pass_beating(milliseconds(200), 1, 7), Verdict::kStuck);
}

TEST_F(CoreWatchTest, ASlowStepThatProgressesIsNotStuck) {
  hear(CoreReady{});
  for (uint64_t progress = 0; progress < 10; ++progress) {
    EXPECT_EQ(pass_beating(milliseconds(2900), 1, progress), Verdict::kFine);
  }
}

TEST_F(CoreWatchTest, TicksComeInTimeToSeeSilence) {
  hear(CoreReady{});
  EXPECT_EQ(watch_.next_tick(), CoreWatch::kHeartbeat);
  (void)pass(milliseconds(70));
  EXPECT_EQ(watch_.next_tick(), milliseconds(10));
  (void)pass(milliseconds(10));
  EXPECT_EQ(watch_.next_tick(), CoreWatch::kHeartbeat);
}

TEST(RestartPolicy, BacksOffUntilSomethingIsServed) {
  RestartPolicy policy(9);
  for (int round = 0; round < 2; ++round) {
    for (const int delay : {0, 100, 200, 400, 800, 1600, 3200, 5000, 5000}) {
      EXPECT_EQ(policy.died(), milliseconds(delay));
    }
    EXPECT_EQ(policy.died(), std::nullopt);
    policy.served();
  }
}

TEST(RestartPolicy, NoRestartsMeansNone) {
  RestartPolicy policy(0);
  policy.served();
  EXPECT_EQ(policy.died(), std::nullopt);
}

}  // namespace
}  // namespace atom
