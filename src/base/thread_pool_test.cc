#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

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

// Whoever comes, the caller's own task ends with nothing left, and nobody is inside afterwards.
TEST(ThreadPool, SharedWorkIsDoneByWhoeverComes) {
  ThreadPool pool(4);
  for (int region = 0; region < 20000; ++region) {
    const int num_pieces = region % 7;
    std::atomic<int> next{0}, done{0}, inside{0};
    int calls[4] = {};
    pool.share([&](int worker) {
      ++inside;
      ++calls[worker];
      while (next++ < num_pieces) ++done;
      --inside;
    });
    ASSERT_EQ(inside.load(), 0);
    ASSERT_EQ(done.load(), num_pieces);
    ASSERT_EQ(calls[0], 1);
    for (const int count : calls) ASSERT_LE(count, 1);
  }
}

TEST(ThreadPool, RegionsOfAllFollowSharedOnes) {
  ThreadPool pool(3);
  for (int i = 0; i < 2000; ++i) {
    pool.share([](int) {});
    std::atomic<int> calls{0};
    pool.run([&](int) { ++calls; });
    ASSERT_EQ(calls.load(), 3);
  }
}

// A worker that sleeps inside stands for one that lost its core: it takes no time of it.
TEST(ThreadPool, WorkersThatLoseTheirCoresStayAwayForAWhile) {
  ThreadPool pool(2);
  const auto wait_inside = [&] {
    std::atomic<bool> is_inside{false};
    pool.share([&](int worker) {
      if (worker == 1) is_inside.store(true);
      while (worker == 0 && !is_inside.load()) std::this_thread::yield();
      if (worker == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    });
  };
  // The first may be bad luck, and on a busy machine more of them come late.
  wait_inside();
  EXPECT_EQ(pool.num_active(), 2);
  for (int i = 0; i < 50 && pool.num_active() == 2; ++i) wait_inside();
  EXPECT_EQ(pool.num_active(), 1);
  int calls[2] = {};
  pool.share([&](int worker) { ++calls[worker]; });
  EXPECT_EQ(calls[0], 1);
  EXPECT_EQ(calls[1], 0);
  while (pool.num_active() == 1) pool.share([](int) {});
  EXPECT_EQ(pool.num_active(), 2);
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
