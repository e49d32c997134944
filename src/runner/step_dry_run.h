// Measures the workspace of a model by running its forward pass on a stream that computes nothing.
#pragma once

#include <cstdint>

#include "config/resolve.h"
#include "runner/model_source.h"

namespace atom {

// Rows of logits computed at once; steps with more (scored prompts) take several passes.
int64_t max_logits_rows(const SchedulerConfig& config, Device device);

// Bytes that any step within the scheduler's limits needs at most.
int64_t measure_workspace(const ResolvedConfig& config, const BuiltModel& built);

}  // namespace atom
