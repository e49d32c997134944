// The progress of long work: how much is done, rate and time left, on one line of a terminal that
// is redrawn at most ten times a second. Nothing is written where there is no terminal.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "base/mutex.h"

namespace atom::cli {

enum class ProgressUnit { kBytes, kCount };

struct Progress {
  std::string label;
  uint64_t done = 0;
  uint64_t total = 0;
  double seconds = 0;  // since the start
  ProgressUnit unit = ProgressUnit::kBytes;
};

// The line of at most `width` columns that shows `progress`.
std::string render_progress(const Progress& progress, int width);

// advance() may be called from any thread; the other members belong to the thread that made it.
class ProgressBar {
 public:
  ProgressBar(std::string label,
              uint64_t total,
              ProgressUnit unit = ProgressUnit::kBytes,
              std::FILE* stream = stderr);
  ~ProgressBar() { finish(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void advance(uint64_t amount);

  // Removes the line, so that what is printed next starts on a clean one. No effect when repeated.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(Clock::time_point now) REQUIRES(mutex_);

  const std::string label_;
  const uint64_t total_;
  const ProgressUnit unit_;
  std::FILE* const stream_;
  const bool visible_;
  const Clock::time_point start_;
  std::atomic<uint64_t> done_{0};
  Mutex mutex_;
  Clock::time_point next_draw_ GUARDED_BY(mutex_);
  bool finished_ GUARDED_BY(mutex_) = false;
};

}  // namespace atom::cli
