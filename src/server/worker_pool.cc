#include "server/worker_pool.h"

#include <utility>

namespace atom::server {

WorkerPool::WorkerPool(int num_threads, size_t max_queued) : max_queued_(max_queued) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { run(); });
}

void WorkerPool::stop() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void WorkerPool::add(std::function<void()> work) {
  if (queue_.empty()) progress_ = Clock::now();
  queue_.push_back(std::move(work));
}

bool WorkerPool::try_post(std::function<void()> work) {
  {
    const MutexLock lock(&mutex_);
    if (stopping_ || queue_.size() >= max_queued_) return false;
    add(std::move(work));
  }
  changed_.notify_one();
  return true;
}

void WorkerPool::post(std::function<void()> work) {
  {
    const MutexLock lock(&mutex_);
    if (stopping_) return;
    add(std::move(work));
  }
  changed_.notify_one();
}

WorkerPool::Clock::duration WorkerPool::stuck_for() const {
  const MutexLock lock(&mutex_);
  return queue_.empty() ? Clock::duration::zero() : Clock::now() - progress_;
}

void WorkerPool::run() {
  MutexLock lock(&mutex_);
  for (;;) {
    while (!stopping_ && queue_.empty()) changed_.wait(&lock);
    if (queue_.empty()) return;
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
    if (!queue_.empty()) progress_ = Clock::now();
  }
}

}  // namespace atom::server
