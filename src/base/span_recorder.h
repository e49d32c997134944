// What threads did and when, noted while somebody profiles. Off until it is started; bounded from
// then on: what comes when it is full is dropped and counted.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/mutex.h"

namespace atom {

struct SpanArgument {
  const char* name = nullptr;  // null: there is none
  int64_t value = 0;
};
using SpanArguments = std::array<SpanArgument, 3>;

// Names live as long as the program and need no escaping in JSON.
struct Span {
  using Clock = std::chrono::steady_clock;

  std::string_view track;  // the row in which it is shown
  std::string_view name;
  std::string_view variant;  // empty: there is none
  Clock::time_point begin;
  Clock::time_point end;
  SpanArguments arguments = {};
};

struct SpanRecording {
  Span::Clock::time_point begin;
  std::vector<Span> spans;   // in the order in which they ended, on each track
  uint64_t num_dropped = 0;  // that came after the last of `spans`
};

class SpanRecorder {
 public:
  static constexpr size_t kMaxSpans = size_t{1} << 18;  // of 112 bytes

  explicit SpanRecorder(size_t max_spans = kMaxSpans) : max_spans_(max_spans) {}

  bool is_on() const { return on_.load(std::memory_order_relaxed); }
  // Forgets what was noted before.
  void start();
  // Drops what began before start(), and everything while it is off.
  void add(std::span<const Span> spans);
  SpanRecording stop();

 private:
  const size_t max_spans_;
  std::atomic<bool> on_{false};
  Mutex mutex_;
  SpanRecording recording_ GUARDED_BY(mutex_);
};

// Notes the time until it is destroyed. `recorder` may be null.
class SpanScope {
 public:
  SpanScope(SpanRecorder* recorder,
            std::string_view track,
            std::string_view name,
            const SpanArguments& arguments = {})
      : recorder_(recorder != nullptr && recorder->is_on() ? recorder : nullptr) {
    if (recorder_ != nullptr) span_ = {track, name, {}, Span::Clock::now(), {}, arguments};
  }
  ~SpanScope() {
    if (recorder_ == nullptr) return;
    span_.end = Span::Clock::now();
    recorder_->add(std::span(&span_, 1));
  }
  SpanScope(const SpanScope&) = delete;
  SpanScope& operator=(const SpanScope&) = delete;

 private:
  SpanRecorder* const recorder_;
  Span span_;
};

}  // namespace atom
