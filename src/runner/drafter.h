// Proposes drafts for the next step of the sequences that a step sampled, by the method that was
// chosen, and leaves them with the sequences (RunnerSequence::drafts). On the CPU. One thread.
#pragma once

#include <span>

#include "config/resolve.h"
#include "runner/runner_sequence.h"
#include "scheduler/scheduler_output.h"
#include "spec_decode/ngram_proposer.h"

namespace atom {

class Drafter {
 public:
  explicit Drafter(const ResolvedConfig& config);

  // After the step's tokens were given to `sequences`, which are in the order of `step.scheduled`
  // and of `output`.
  void propose(const SchedulerOutput& step,
               std::span<RunnerSequence* const> sequences,
               ModelRunnerOutput* output) const;

 private:
  const int32_t num_tokens_;
  const NgramProposer ngram_;
};

}  // namespace atom
