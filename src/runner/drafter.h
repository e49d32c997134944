// Proposes drafts for the next step of the sequences that a step sampled, by the method that was
// chosen, and leaves them with the sequences (RunnerSequence::drafts). One thread.
#pragma once

#include <optional>
#include <span>

#include "config/resolve.h"
#include "runner/input_builder.h"
#include "runner/runner_sequence.h"
#include "scheduler/scheduler_output.h"
#include "spec_decode/eagle_proposer.h"
#include "spec_decode/ngram_proposer.h"

namespace atom {

class Drafter {
 public:
  // `model` is null where the method needs none, and outlives this, as `stream` does.
  Drafter(const ResolvedConfig& config,
          const ParallelContext& parallel,
          const DraftModel* model,
          int64_t num_sampled_ids,
          const Stream& stream);

  // On a device, for steps of a shape that are recorded: records what a draft model does behind
  // them. `hidden` and `context` as propose() gets them.
  Status record(const DecodeShape& shape, const Tensor& hidden, const ForwardContext& context);

  // After the step's tokens were given to `sequences`, which are in the order of `step.scheduled`
  // and of `output`. hidden [num_tokens, hidden_size]: of the step, whose context is `context`.
  // recorded: the shape of a recorded step, or null.
  void propose(const SchedulerOutput& step,
               std::span<RunnerSequence* const> sequences,
               const Tensor& hidden,
               const ForwardContext& context,
               const DecodeShape* recorded,
               ModelRunnerOutput* output);

  // After a step that is a dummy: the passes that its draft model owes to others. Needs a model.
  void propose_nothing(const Tensor& hidden, const ForwardContext& context);

 private:
  const int32_t num_tokens_;
  const int32_t largest_batch_;  // that drafts
  const NgramProposer ngram_;
  std::optional<EagleProposer> eagle_;
};

}  // namespace atom
