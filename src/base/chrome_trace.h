// Spans as the JSON that chrome://tracing and ui.perfetto.dev read.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/span_recorder.h"

namespace atom {

struct TraceLabels {
  std::string process;                                     // what to call this process
  std::vector<std::pair<std::string, std::string>> notes;  // shown beside the trace
};

// Times are microseconds from the recording's begin; a track is a thread, in the order in which
// they first appear.
std::string chrome_trace(const SpanRecording& recording, const TraceLabels& labels);

}  // namespace atom
