#include "engine/runner_thread.h"

#include "base/check.h"

namespace atom {

RunnerThread::RunnerThread(std::unique_ptr<ModelRunner> runner)
    : runner_(std::move(runner)), thread_([this] { loop(); }) {}

RunnerThread::~RunnerThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  submitted_.notify_one();
  thread_.join();
}

void RunnerThread::submit(SchedulerOutput step) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(step));
  }
  submitted_.notify_one();
  ++num_in_flight_;
}

std::optional<RunnerThread::Completed> RunnerThread::wait_until(Clock::time_point deadline) {
  CHECK(num_in_flight_ > size_t{0});
  std::unique_lock lock(mutex_);
  if (!completed_.wait_until(lock, deadline, [this] { return !done_.empty(); })) {
    return std::nullopt;
  }
  Completed completed = std::move(done_.front());
  done_.pop_front();
  --num_in_flight_;
  return completed;
}

void RunnerThread::loop() {
  for (;;) {
    SchedulerOutput step;
    {
      std::unique_lock lock(mutex_);
      submitted_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      step = std::move(queue_.front());
      queue_.pop_front();
    }
    const Clock::time_point begin = Clock::now();
    ModelRunnerOutput output = runner_->execute(step);
    const Clock::time_point end = Clock::now();
    {
      const std::lock_guard lock(mutex_);
      done_.push_back({std::move(step), std::move(output), begin, end});
    }
    completed_.notify_one();
  }
}

}  // namespace atom
