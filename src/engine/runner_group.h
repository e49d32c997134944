// The runners of one engine core: one for each rank, on a thread of its own. All take the same
// steps, by reference; the first answers. Ranks compute the same choices from the same logits, so
// nothing but collectives passes between them.
//
// Where one rank cannot go on the others do not wait for it: status() says why from then on, and
// what steps still give is without meaning.
#pragma once

#include <memory>
#include <vector>

#include "engine/runner_thread.h"
#include "runner/local_ranks.h"

namespace atom {

class RunnerGroup {
 public:
  using Clock = RunnerThread::Clock;
  using Completed = RunnerThread::Completed;

  // As ModelRunner::create(), of all ranks at once; progress is that of the first. `recorder`,
  // which may be null, is told of the first rank's steps.
  static Result<std::unique_ptr<RunnerGroup>> create(
      const ResolvedConfig& config,
      int64_t num_sampled_ids,
      const std::function<void(const StartProgress&)>& progress,
      SpanRecorder* recorder);
  // The same for copy `copy` of those that share experts, whose ranks are all in `ranks`. All
  // copies at once, each on a thread of its own.
  static Result<std::unique_ptr<RunnerGroup>> create_copy(
      const ResolvedConfig& config,
      int64_t num_sampled_ids,
      const std::function<void(const StartProgress&)>& progress,
      SpanRecorder* recorder,
      std::shared_ptr<LocalRanks> ranks,
      int copy);
  // Ends after the steps that are running, with several ranks in the middle of them.
  ~RunnerGroup();

  // Of each rank alike.
  const MemoryPlan& memory_plan() const { return plan_; }

  void submit(SchedulerOutput step);
  // See RunnerThread.
  std::optional<Completed> wait_until(Clock::time_point deadline);
  size_t num_in_flight() const { return ranks_.front()->num_in_flight(); }
  // Of all ranks together.
  uint64_t progress() const;
  int64_t num_device_allocations() const;

  // Why the ranks cannot go on together.
  Status status() const { return local_ranks_->status(); }

 private:
  RunnerGroup() = default;

  MemoryPlan plan_;
  std::shared_ptr<LocalRanks> local_ranks_;  // of all copies that share experts
  std::vector<std::unique_ptr<RunnerThread>> ranks_;
};

}  // namespace atom
