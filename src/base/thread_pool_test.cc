#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>

namespace atom {
namespace {

TEST(ThreadPool, RunsEveryWorkerOnce) {
  ThreadPool pool(4);
  std::vector<int> calls(4, 0);
  for (int i = 0; i < 1000; ++i) pool.run([&](int worker) { ++calls[worker]; });
  EXPECT_EQ(calls, std::vector<int>(4, 1000));
}

TEST(ThreadPool, CoversTheRangeOnce) {
  ThreadPool pool(3);
  for (int64_t n : {0, 1, 7, 64, 1000}) {
    for (int64_t grain : {1, 3, 64, 5000}) {
      std::vector<int> hits(n, 0);
      pool.parallel_for(n, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++hits[i];
      });
      EXPECT_EQ(std::accumulate(hits.begin(), hits.end(), 0), n);
      EXPECT_TRUE(n == 0 || *std::max_element(hits.begin(), hits.end()) == 1);
    }
  }
}

TEST(ThreadPool, WakesWorkersThatFellAsleep) {
  ThreadPool pool(2);
  for (int i = 0; i < 3; ++i) {
    std::atomic<int> calls{0};
    pool.run([&](int) { ++calls; });
    EXPECT_EQ(calls.load(), 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace
}  // namespace atom
