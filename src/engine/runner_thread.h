// The thread that owns a ModelRunner: passes it steps in the order they are submitted, as many at
// once as it takes, and collects their results. While a device works it looks for both in turns and
// does not sleep: the device must never wait for its next step.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "runner/model_runner.h"

namespace atom {

class RunnerThread {
 public:
  // A runner that does not answer only computes: nothing comes from it to be waited for.
  explicit RunnerThread(std::unique_ptr<ModelRunner> runner, bool answers = true);
  // Ends after the steps that are running; steps still queued are dropped.
  ~RunnerThread();
  // The same before the object goes.
  void stop();

  void submit(std::shared_ptr<const SchedulerOutput> step);

  using Clock = std::chrono::steady_clock;
  struct Completed {
    std::shared_ptr<const SchedulerOutput> step;
    ModelRunner::Collected collected;
  };
  // The oldest submitted step that was not collected yet, if it is done before `deadline`.
  std::optional<Completed> wait_until(Clock::time_point deadline);

  // Steps submitted and not collected; none of a runner that does not answer.
  size_t num_in_flight() const { return num_in_flight_; }
  // See ModelRunner.
  uint64_t progress() const { return runner_->progress(); }
  int64_t num_device_allocations() const { return runner_->num_device_allocations(); }
  ExpertBalancer::Figures expert_figures() const { return runner_->expert_figures(); }

 private:
  void loop();
  // The next step if the runner takes it now; waits for one when nothing runs. Null: stopping, or
  // there is nothing to submit yet.
  std::shared_ptr<const SchedulerOutput> next_step();
  void collect(std::shared_ptr<const SchedulerOutput> step);

  std::unique_ptr<ModelRunner> runner_;
  const bool answers_;
  size_t num_in_flight_ = 0;  // of the submitting thread

  Mutex mutex_;
  Condition submitted_;
  Condition completed_;
  std::deque<std::shared_ptr<const SchedulerOutput>> queue_ GUARDED_BY(mutex_);
  std::deque<Completed> done_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace atom
