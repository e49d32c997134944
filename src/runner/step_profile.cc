#include "runner/step_profile.h"

#include <algorithm>

namespace atom {
namespace {

Span::Clock::duration to_duration(double seconds) {
  return std::chrono::duration_cast<Span::Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

const char* step_kind(const SchedulerOutput& step) {
  const auto is_decode = [](const ScheduledSequence& scheduled) {
    return scheduled.is_decode() && scheduled.num_computed_tokens > 0;
  };
  const auto num_decodes = std::ranges::count_if(step.scheduled, is_decode);
  if (num_decodes == 0) return "prefill";
  return num_decodes == std::ssize(step.scheduled) ? "decode" : "mixed";
}

SpanArguments step_arguments(const SchedulerOutput& step) {
  return {{{"step", static_cast<int64_t>(step.step)},
           {"sequences", std::ssize(step.scheduled)},
           {"tokens", step.num_tokens}}};
}

std::vector<Span> operator_spans(const std::vector<OperatorRun>& runs,
                                 Span::Clock::time_point begin) {
  std::vector<Span> spans;
  for (const OperatorRun& run : runs) {
    const Span::Clock::time_point run_begin = begin + to_duration(run.begin);
    spans.push_back({"operators",
                     run.op,
                     run.variant,
                     run_begin,
                     run_begin + to_duration(run.seconds),
                     {{{"bytes", run.work.bytes}, {"flops", run.work.flops}}}});
  }
  return spans;
}

}  // namespace atom
