// A step between ModelRunner::submit() and collect().
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "base/span_recorder.h"
#include "runner/device_sampler.h"
#include "scheduler/scheduler_output.h"
#include "tensor/device_runtime.h"
#include "tensor/operator_trace.h"

namespace atom {

// A step that a profile notes.
struct ProfiledStep {
  const char* kind = nullptr;  // step_kind()
  SpanArguments arguments;
  OperatorTrace::Noted operators;  // none of a recorded step
};

// Marks around a step's work on a device.
struct StepEvents {
  std::unique_ptr<DeviceEvent> begin;
  std::unique_ptr<DeviceEvent> end;
};

// A row whose token goes to a sequence.
struct SampledRow {
  size_t output_index = 0;  // into ModelRunnerOutput::sequences
  SequenceId id = 0;
  size_t token_index = 0;  // into RunnerSequence::token_ids
};

struct StepInFlight {
  ModelRunnerOutput output;              // without the tokens that a device has not brought yet
  std::vector<SampledRow> rows;          // in the order in which they are sampled
  const StepEvents* events = nullptr;    // of a step that works on a device
  FetchedTokens tokens;                  // there when the events have passed
  bool is_settled = false;               // they are with their sequences
  std::chrono::nanoseconds duration{0};  // ModelRunner::Collected's
  std::chrono::nanoseconds wait{0};
  std::optional<ProfiledStep> profiled;
};

}  // namespace atom
