// Threads for what takes longer than the I/O thread may: parsing bodies, templates, tokenizing,
// building large answers. The queue is bounded.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace atom::server {

class WorkerPool {
 public:
  using Clock = std::chrono::steady_clock;

  WorkerPool(int num_threads, size_t max_queued);
  ~WorkerPool() { stop(); }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False when the queue is full. Any thread. Work does not throw.
  [[nodiscard]] bool try_post(std::function<void()> work);
  // Past the bound of the queue: for work that ends a request which was admitted already. Dropped
  // once the pool has stopped.
  void post(std::function<void()> work);
  // For how long work has waited without any other coming to an end; 0 while none waits. Any
  // thread.
  Clock::duration stuck_for() const;
  // Runs what is queued, then ends the threads. On the owner's thread.
  void stop();

 private:
  void add(std::function<void()> work) REQUIRES(mutex_);
  void run();

  mutable Mutex mutex_;
  Condition changed_;
  std::deque<std::function<void()>> queue_ GUARDED_BY(mutex_);
  Clock::time_point progress_ GUARDED_BY(mutex_);  // work ended, or began to wait
  bool stopping_ GUARDED_BY(mutex_) = false;
  const size_t max_queued_;
  std::vector<std::thread> threads_;
};

}  // namespace atom::server
