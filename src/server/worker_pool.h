// Threads for what takes longer than the I/O thread may: parsing bodies, templates, tokenising,
// building large answers. The queue is bounded.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace atom::server {

class WorkerPool {
 public:
  WorkerPool(int num_threads, size_t max_queued);
  ~WorkerPool() { stop(); }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False when the queue is full. Any thread.
  [[nodiscard]] bool try_post(std::function<void()> work);
  // Past the bound of the queue: for work that ends a request which was admitted already. Dropped
  // once the pool has stopped.
  void post(std::function<void()> work);
  // Runs what is queued, then ends the threads. On the owner's thread.
  void stop();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;  // guarded by mutex_
  bool stopping_ = false;                    // guarded by mutex_
  const size_t max_queued_;
  std::vector<std::thread> threads_;
};

}  // namespace atom::server
