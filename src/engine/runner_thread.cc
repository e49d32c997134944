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

std::optional<SchedulerOutput> RunnerThread::next_step() {
  std::unique_lock lock(mutex_);
  if (!runner_->has_steps()) {
    submitted_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
  }
  if (stopping_ || queue_.empty() || !runner_->can_submit()) return std::nullopt;
  SchedulerOutput step = std::move(queue_.front());
  queue_.pop_front();
  return step;
}

void RunnerThread::collect(SchedulerOutput step) {
  ModelRunner::Collected collected = runner_->collect();
  {
    const std::lock_guard lock(mutex_);
    done_.push_back({std::move(step), std::move(collected)});
  }
  completed_.notify_one();
}

void RunnerThread::loop() {
  std::deque<SchedulerOutput> running;
  for (;;) {
    std::optional<SchedulerOutput> step = next_step();
    if (step) {
      runner_->submit(*step);
      running.push_back(std::move(*step));
    } else if (running.empty()) {
      return;
    }
    if (runner_->is_done()) {
      collect(std::move(running.front()));
      running.pop_front();
    } else if (!step) {
      std::this_thread::yield();
    }
  }
}

}  // namespace atom
