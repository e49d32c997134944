#include "base/thread_limit.h"

#include <gtest/gtest.h>

namespace atom {
namespace {

using std::chrono::milliseconds;

constexpr ThreadLimit::Time kStart{std::chrono::hours(1)};

constexpr milliseconds kLost{2};
constexpr milliseconds kPause = ThreadLimit::kPausePerLoss * kLost;

TEST(ThreadLimit, LateWorkersStayAwayForAPause) {
  ThreadLimit limit(8);
  EXPECT_FALSE(limit.is_lowered());
  limit.lower(2, kLost, kStart);
  EXPECT_EQ(limit.current(), 6);
  EXPECT_TRUE(limit.is_lowered());
  EXPECT_FALSE(limit.raise(kStart + kPause - milliseconds(1)));
  EXPECT_EQ(limit.current(), 6);
  EXPECT_TRUE(limit.raise(kStart + kPause));
  EXPECT_EQ(limit.current(), 8);
  EXPECT_FALSE(limit.is_lowered());
}

TEST(ThreadLimit, TheCallerAlwaysTakesPart) {
  ThreadLimit limit(4);
  limit.lower(3, kLost, kStart);
  limit.lower(3, kLost, kStart);
  EXPECT_EQ(limit.current(), 1);
}

// Tries of 5 ms, each of which fails: pauses of 80, 160, ... 1280, 2000, 2000 ms.
TEST(ThreadLimit, PausesDoubleWhileItLasts) {
  ThreadLimit limit(2);
  ThreadLimit::Time now = kStart;
  int num_tries = 0;
  for (; now < kStart + milliseconds(10000); ++num_tries) {
    limit.lower(1, kLost, now);
    while (!limit.raise(now)) now += milliseconds(1);
    now += milliseconds(5);
  }
  EXPECT_EQ(num_tries, 9);
}

TEST(ThreadLimit, TriesCostAFortieth) {
  ThreadLimit limit(2);
  limit.lower(1, milliseconds(30), kStart);
  EXPECT_FALSE(limit.raise(kStart + milliseconds(1199)));
  EXPECT_TRUE(limit.raise(kStart + milliseconds(1200)));
}

TEST(ThreadLimit, WaitsThatAreRareAreBorne) {
  ThreadLimit limit(2);
  ThreadLimit::Time now = kStart;
  for (int i = 0; i < 10; ++i) {
    limit.wait(1, kLost, now += 4 * kLost);
    EXPECT_FALSE(limit.is_lowered());
  }
  limit.wait(1, kLost, now += 2 * kLost);
  EXPECT_EQ(limit.current(), 1);
}

TEST(ThreadLimit, OnceItIsOverPausesAreShortAgain) {
  ThreadLimit limit(2);
  ThreadLimit::Time now = kStart;
  for (int i = 0; i < 10; ++i) {
    limit.lower(1, kLost, now);
    while (!limit.raise(now)) now += milliseconds(1);
  }
  now += ThreadLimit::kLastPause;
  limit.lower(1, kLost, now);
  EXPECT_FALSE(limit.raise(now + kPause - milliseconds(1)));
  EXPECT_TRUE(limit.raise(now + kPause));
}

}  // namespace
}  // namespace atom
