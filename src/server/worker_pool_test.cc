#include "server/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace atom::server {
namespace {

using std::chrono::milliseconds;

TEST(WorkerPool, SaysForHowLongNothingCameToAnEnd) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  WorkerPool pool(2, 16);
  EXPECT_EQ(pool.stuck_for(), milliseconds(0));
  std::atomic<int> num_started{0};
  const auto block = [&num_started, released] {
    ++num_started;
    released.wait();
  };
  ASSERT_TRUE(pool.try_post(block));
  ASSERT_TRUE(pool.try_post(block));
  while (num_started < 2) std::this_thread::yield();
  // Both threads are busy, and nobody waits for them.
  EXPECT_EQ(pool.stuck_for(), milliseconds(0));
  std::promise<void> ran;
  ASSERT_TRUE(pool.try_post([&ran] { ran.set_value(); }));
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_GE(pool.stuck_for(), milliseconds(30));
  release.set_value();
  ran.get_future().wait();
  EXPECT_EQ(pool.stuck_for(), milliseconds(0));
}

TEST(WorkerPool, RefusesBeyondItsQueue) {
  std::promise<void> release;
  std::promise<void> started;
  WorkerPool pool(1, 1);
  ASSERT_TRUE(pool.try_post([&] {
    started.set_value();
    release.get_future().wait();
  }));
  started.get_future().wait();
  std::atomic<int> num_run{0};
  EXPECT_TRUE(pool.try_post([&] { ++num_run; }));
  EXPECT_FALSE(pool.try_post([&] { ++num_run; }));
  pool.post([&] { ++num_run; });
  release.set_value();
  pool.stop();
  EXPECT_EQ(num_run, 2);
}

}  // namespace
}  // namespace atom::server
