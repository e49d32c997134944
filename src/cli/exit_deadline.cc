#include "cli/exit_deadline.h"

#include <cstdlib>

#include "base/log.h"

namespace atom::cli {

ExitDeadline::~ExitDeadline() {
  {
    const MutexLock lock(&mutex_);
    done_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void ExitDeadline::set(Clock::time_point time, int exit_code) {
  {
    const MutexLock lock(&mutex_);
    if (time_ && *time_ <= time) return;
    time_ = time;
    exit_code_ = exit_code;
  }
  changed_.notify_one();
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void ExitDeadline::run() {
  MutexLock lock(&mutex_);
  while (!done_ && Clock::now() < *time_) changed_.wait_until(&lock, *time_);
  if (done_) return;
  log::warning("stopped without waiting for work that did not end");
  std::_Exit(exit_code_);
}

}  // namespace atom::cli
