// The sequences that a ModelRunner knows, kept up to date by what the scheduler says of them. One
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "runner/runner_sequence.h"
#include "scheduler/scheduler_output.h"

namespace atom {

class SequenceTable {
 public:
  // See SamplingState. `samples`: the runner knows by itself what was sampled and drafted; else
  // steps tell it. `num_kv_groups`: SchedulerConfig's.
  SequenceTable(std::vector<int32_t> eos_token_ids,
                int64_t num_sampled_ids,
                bool samples,
                int32_t num_kv_groups);

  // Takes the changes that come with a step.
  void update(const SchedulerOutput& step);

  // Those of the last step, in its order; good until the next.
  std::span<RunnerSequence* const> scheduled() const { return scheduled_; }

  // Null when the scheduler has said that it is finished.
  RunnerSequence* find(SequenceId id);

 private:
  std::vector<int32_t> eos_token_ids_;
  int64_t num_sampled_ids_;
  bool samples_;
  int32_t num_kv_groups_;
  std::unordered_map<SequenceId, RunnerSequence> sequences_;
  std::vector<RunnerSequence*> scheduled_;
};

}  // namespace atom
