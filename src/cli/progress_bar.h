// The progress of a long load: bytes done, rate and time left, on one line of a terminal that is
// redrawn at most ten times a second. Nothing is written where there is no terminal.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>

namespace atom::cli {

struct Progress {
  std::string label;
  uint64_t done = 0;   // bytes
  uint64_t total = 0;  // bytes
  double seconds = 0;  // since the start
};

// The line of at most `width` columns that shows `progress`.
std::string render_progress(const Progress& progress, int width);

// advance() may be called from any thread; the other members belong to the thread that made it.
class ProgressBar {
 public:
  ProgressBar(std::string label, uint64_t total_bytes, std::FILE* stream = stderr);
  ~ProgressBar() { finish(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void advance(uint64_t num_bytes);

  // Removes the line, so that what is printed next starts on a clean one. No effect when repeated.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(Clock::time_point now);  // with mutex_ held

  const std::string label_;
  const uint64_t total_;
  std::FILE* const stream_;
  const bool visible_;
  const Clock::time_point start_;
  std::atomic<uint64_t> done_{0};
  std::mutex mutex_;
  Clock::time_point next_draw_;  // guarded by mutex_
  bool finished_ = false;        // guarded by mutex_
};

}  // namespace atom::cli
