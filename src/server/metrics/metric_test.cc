#include "server/metrics/metric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

namespace atom::server {
namespace {

TEST(Histogram, BoundsAreIncludedInTheirBucket) {
  Histogram histogram({1, 2, 5}, Histogram::kWhole);
  for (const double value : {0.0, 1.0, 1.5, 2.0, 2.000001, 5.0, 6.0, 1e12}) {
    histogram.observe(value);
  }
  const Histogram::Snapshot snapshot = histogram.snapshot();
  EXPECT_EQ(snapshot.cumulative, (std::vector<uint64_t>{2, 4, 6, 8}));
}

TEST(Histogram, SumsInFixedPoint) {
  Histogram histogram({1}, Histogram::kNanoseconds);
  for (int i = 0; i < 1000; ++i) histogram.observe(0.0012345);
  histogram.observe(0.25, 4);
  const Histogram::Snapshot snapshot = histogram.snapshot();
  EXPECT_NEAR(snapshot.sum, 2.2345, 1e-6);
  EXPECT_EQ(snapshot.cumulative, (std::vector<uint64_t>{1004, 1004}));
}

TEST(Histogram, TakesAnyValue) {
  Histogram histogram({1, 2}, Histogram::kNanoseconds);
  histogram.observe(-3);
  histogram.observe(std::nan(""));
  histogram.observe(std::numeric_limits<double>::infinity());
  histogram.observe(1e300);
  const Histogram::Snapshot snapshot = histogram.snapshot();
  EXPECT_EQ(snapshot.cumulative, (std::vector<uint64_t>{2, 2, 4}));
  EXPECT_TRUE(std::isfinite(snapshot.sum));
}

TEST(Histogram, LosesNothingBetweenThreads) {
  constexpr int kNumThreads = 4;
  constexpr int kNumEach = 20000;
  Histogram histogram({0.5, 1.5}, Histogram::kWhole);
  Counter counter;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kNumThreads; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < kNumEach; ++i) {
        histogram.observe(i % 3);
        counter.add(2);
      }
    });
  }
  uint64_t last = 0;
  for (int i = 0; i < 100; ++i) {
    const Histogram::Snapshot snapshot = histogram.snapshot();
    EXPECT_LE(snapshot.cumulative[0], snapshot.cumulative[1]);
    EXPECT_LE(snapshot.cumulative[1], snapshot.cumulative[2]);
    EXPECT_GE(snapshot.cumulative[2], last);
    last = snapshot.cumulative[2];
  }
  for (std::thread& thread : threads) thread.join();
  const Histogram::Snapshot snapshot = histogram.snapshot();
  EXPECT_EQ(snapshot.cumulative[2], uint64_t{kNumThreads} * kNumEach);
  EXPECT_EQ(counter.value(), uint64_t{kNumThreads} * kNumEach * 2);
  double sum = 0;
  for (int i = 0; i < kNumEach; ++i) sum += i % 3;
  EXPECT_EQ(snapshot.sum, sum * kNumThreads);
}

TEST(HistogramDeathTest, WantsAscendingFiniteBounds) {
  EXPECT_DEATH(Histogram({}, 1), "");
  EXPECT_DEATH(Histogram({1, 1}, 1), "");
  EXPECT_DEATH(Histogram({1, INFINITY}, 1), "");
}

}  // namespace
}  // namespace atom::server
