#include "base/span_recorder.h"

#include <utility>

namespace atom {

void SpanRecorder::start() {
  const MutexLock lock(&mutex_);
  recording_ = {};
  recording_.begin = Span::Clock::now();
  on_ = true;
}

void SpanRecorder::add(std::span<const Span> spans) {
  const MutexLock lock(&mutex_);
  if (!on_) return;
  for (const Span& span : spans) {
    if (span.begin < recording_.begin) continue;
    if (recording_.spans.size() < max_spans_) {
      recording_.spans.push_back(span);
    } else {
      ++recording_.num_dropped;
    }
  }
}

SpanRecording SpanRecorder::stop() {
  const MutexLock lock(&mutex_);
  on_ = false;
  return std::exchange(recording_, {});
}

}  // namespace atom
