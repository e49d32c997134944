// The end of the process at a given time, whatever its threads are doing: a promise that an orderly
// end alone cannot keep.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

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

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Clock::time_point> time_;  // guarded by mutex_
  int exit_code_ = 0;                      // guarded by mutex_
  bool done_ = false;                      // guarded by mutex_
  std::thread thread_;
};

}  // namespace atom::cli
