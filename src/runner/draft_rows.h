// What a step with drafts asks of a device's sampler and of its memory, beyond a step without.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "config/resolve.h"
#include "models/draft_model.h"
#include "runner/runner_sequence.h"
#include "sampling/sample_row_params.h"
#include "scheduler/scheduler_output.h"
#include "tensor/workspace.h"

namespace atom {

// The states of sequences as they would be behind some of their drafts.
using SupposedStates = std::deque<SamplingState>;

// The rows that sample, each as if all drafts before it were right: it counts only if they are.
// Where a choice depends on the tokens before, and not on their number alone, the row's state is a
// copy in `supposed`, which has to live until the rows have been sent.
std::vector<DeviceSamplingRow> rows_behind_drafts(const SchedulerOutput& step,
                                                  std::span<RunnerSequence* const> sequences,
                                                  SupposedStates* supposed);

// States of the target that the draft model reads for each token.
int64_t num_states_of(const DraftModel& draft);

// The shape of the target's states for the largest recorded step.
Shape draft_states_shape(const ResolvedConfig& config, const DraftModel& draft);

// ForwardContext::aux_hidden for a draft model that reads so many layers' inputs; undefined for 0.
Tensor aux_hidden_of(const ResolvedConfig& config,
                     int64_t num_aux_layers,
                     int64_t num_tokens,
                     Workspace& workspace);

}  // namespace atom
