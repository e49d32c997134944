// What a runner tells a profile of its steps. Tracks: "runner" is the host's work; on a device its
// work is "device", by its own clock, placed on the host's by the moment at which the step's end
// was seen. "operators" are those of steps that are not recorded.
#pragma once

#include <vector>

#include "base/span_recorder.h"
#include "runner/step_in_flight.h"
#include "scheduler/scheduler_output.h"
#include "tensor/profiler_range.h"

namespace atom {

// A range of the runner's thread, for a profile and for a profiler that watches from outside.
class HostRange {
 public:
  HostRange(SpanRecorder* recorder, const char* name, const SpanArguments& arguments = {})
      : range_(name), span_(recorder, "runner", name, arguments) {}

 private:
  const ProfilerRange range_;
  const SpanScope span_;
};

// "prefill", "decode" or "mixed"; the last token of a prompt by itself counts as decode.
const char* step_kind(const SchedulerOutput& step);
SpanArguments step_arguments(const SchedulerOutput& step);

// Spans of `runs`, of which the first began at `begin`.
std::vector<Span> operator_spans(const std::vector<OperatorRun>& runs,
                                 Span::Clock::time_point begin);

}  // namespace atom
