#include "comm/collective_times.h"

#include <gtest/gtest.h>

#include <thread>

#include "comm/local/local_group.h"

namespace atom {
namespace {

TEST(CollectiveTimes, EveryRankKnowsEachSizeAndOperation) {
  const auto ranks = make_local_group(2, std::chrono::seconds(20));
  const int64_t sizes[] = {64, 4096};
  std::vector<std::vector<CollectiveTime>> times(2);
  const auto measure = [&](size_t rank) {
    ThreadPool pool(1);
    times[rank] =
        measure_collectives(*ranks[rank], Stream(&pool), sizes, std::chrono::milliseconds(1))
            .value();
  };
  std::thread other(measure, 1);
  measure(0);
  other.join();
  ASSERT_EQ(times[0].size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(times[0][i].bytes, sizes[i / 3]);
    EXPECT_EQ(times[0][i].collective, kCollectives[i % 3]);
    EXPECT_GT(times[0][i].seconds, 0);
    EXPECT_EQ(times[0][i].seconds, times[1][i].seconds);
  }
}

TEST(CollectiveTimes, AGroupThatFailsIsNoFigure) {
  const auto ranks = make_local_group(2, std::chrono::seconds(20));
  ranks[1]->fail(unavailable("gone"));
  ThreadPool pool(1);
  const int64_t sizes[] = {64};
  EXPECT_EQ(measure_collectives(*ranks[0], Stream(&pool), sizes, std::chrono::milliseconds(1))
                .status()
                .message(),
            "gone");
}

// Of four ranks each sends three quarters of what it gathers, and twice that to reduce.
TEST(CollectiveTimes, BusBandwidthIsWhatARankHasToSend) {
  const CollectiveTime gathered{Collective::kAllGather, 4000, 1e-6};
  EXPECT_DOUBLE_EQ(gathered.bus_bandwidth(4), 3e9);
  const CollectiveTime reduced{Collective::kAllReduce, 4000, 1e-6};
  EXPECT_DOUBLE_EQ(reduced.bus_bandwidth(4), 6e9);
}

}  // namespace
}  // namespace atom
