#include "engine/runner_thread.h"

#include "base/check.h"

namespace atom {

RunnerThread::RunnerThread(std::unique_ptr<ModelRunner> runner, bool answers)
    : runner_(std::move(runner)), answers_(answers), thread_([this] { loop(); }) {}

RunnerThread::~RunnerThread() {
  stop();
}

void RunnerThread::stop() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  submitted_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void RunnerThread::submit(std::shared_ptr<const SchedulerOutput> step) {
  {
    const MutexLock lock(&mutex_);
    queue_.push_back(std::move(step));
  }
  submitted_.notify_one();
  if (answers_) ++num_in_flight_;
}

std::optional<RunnerThread::Completed> RunnerThread::wait_until(Clock::time_point deadline) {
  CHECK(num_in_flight_ > size_t{0});
  MutexLock lock(&mutex_);
  while (done_.empty()) {
    if (completed_.wait_until(&lock, deadline) == std::cv_status::no_timeout) continue;
    if (done_.empty()) return std::nullopt;
  }
  Completed completed = std::move(done_.front());
  done_.pop_front();
  --num_in_flight_;
  return completed;
}

std::shared_ptr<const SchedulerOutput> RunnerThread::next_step() {
  MutexLock lock(&mutex_);
  if (!runner_->has_steps()) {
    while (!stopping_ && queue_.empty()) submitted_.wait(&lock);
  }
  if (stopping_ || queue_.empty() || !runner_->can_submit()) return nullptr;
  std::shared_ptr<const SchedulerOutput> step = std::move(queue_.front());
  queue_.pop_front();
  return step;
}

void RunnerThread::collect(std::shared_ptr<const SchedulerOutput> step) {
  ModelRunner::Collected collected = runner_->collect();
  if (!answers_) return;
  {
    const MutexLock lock(&mutex_);
    done_.push_back({std::move(step), std::move(collected)});
  }
  completed_.notify_one();
}

void RunnerThread::loop() {
  runner_->take_thread();
  std::deque<std::shared_ptr<const SchedulerOutput>> running;
  for (;;) {
    std::shared_ptr<const SchedulerOutput> step = next_step();
    const bool has_step = step != nullptr;
    if (has_step) {
      runner_->submit(*step);
      running.push_back(std::move(step));
    } else if (running.empty()) {
      return;
    }
    if (runner_->is_done()) {
      collect(std::move(running.front()));
      running.pop_front();
    } else if (!has_step) {
      std::this_thread::yield();
    }
  }
}

}  // namespace atom
