// The end of the process at a given time, whatever its threads are doing: a promise that an orderly
// end alone cannot keep.
#pragma once

#include <chrono>
#include <optional>
#include <thread>

#include "base/mutex.h"

namespace atom::cli {

class ExitDeadline {
 public:
  using Clock = std::chrono::steady_clock;

  ExitDeadline() = default;
  // The orderly end came first.
  ~ExitDeadline();
  ExitDeadline(const ExitDeadline&) = delete;
  ExitDeadline& operator=(const ExitDeadline&) = delete;

  // The earliest time that was set counts. By one thread.
  void set(Clock::time_point time, int exit_code);

 private:
  void run();

  Mutex mutex_;
  Condition changed_;
  std::optional<Clock::time_point> time_ GUARDED_BY(mutex_);
  int exit_code_ GUARDED_BY(mutex_) = 0;
  bool done_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace atom::cli
