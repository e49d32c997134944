// The ranks of one engine under a benchmark's own steps: it drives the first rank, and the others
// take the same steps on threads of their own.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "base/status.h"
#include "config/resolve.h"
#include "engine/runner_thread.h"
#include "runner/local_ranks.h"
#include "runner/model_runner.h"

namespace atom::cli {

class BenchRanks {
 public:
  // The ranks of one copy with one stage.
  static Result<std::unique_ptr<BenchRanks>> create(const ResolvedConfig& config);
  ~BenchRanks();

  // The rank that the calling thread computes.
  ModelRunner& first() { return *first_; }
  // The step on all ranks; returns when the first has computed it, with how long that took it
  // (ModelRunner::Collected::duration).
  std::chrono::nanoseconds run(const SchedulerOutput& step);

 private:
  BenchRanks() = default;

  std::shared_ptr<LocalRanks> ranks_;
  std::unique_ptr<ModelRunner> first_;
  std::vector<std::unique_ptr<RunnerThread>> others_;
};

}  // namespace atom::cli
