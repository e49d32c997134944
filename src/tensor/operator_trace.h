// Which operators ran on a stream, by which variant, for how long and with how much work. A stream
// may carry one; it notes nothing until it is started. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "tensor/device_runtime.h"

namespace atom {

// What an operator has to do at least.
struct OperatorWork {
  int64_t bytes = 0;    // of device memory, read and written, each once
  int64_t flops = 0;    // a multiply-add is two
  bool is_fp8 = false;  // they multiply FP8 by FP8

  bool operator==(const OperatorWork&) const = default;
};

struct OperatorRun {
  std::string_view op;
  std::string_view variant;
  OperatorWork work = {};
  double begin = 0;    // seconds after the first operator began
  double seconds = 0;  // until the next operator began, or the trace was stopped
};

class OperatorTrace {
 public:
  // Work goes to that queue, not to the calling thread. The queue outlives the trace's use.
  void attach(DeviceQueue* queue) { queue_ = queue; }

  // Forgets what was noted before. A queue is held up for a moment, so that the host is ahead of it
  // and no operator waits to be launched.
  void start();
  // An operator begins. Names live as long as the program.
  void begin(std::string_view op, std::string_view variant, const OperatorWork& work);
  bool is_started() const { return is_started_; }
  // Ends the last operator and waits for it.
  std::vector<OperatorRun> stop();

 private:
  using Clock = std::chrono::steady_clock;
  // A point in the work of the queue or of the calling thread.
  struct Mark {
    std::unique_ptr<DeviceEvent> event;  // null on the CPU
    Clock::time_point time;
  };

  void mark();
  double seconds_between(const Mark& from, const Mark& to) const;

  DeviceQueue* queue_ = nullptr;
  bool is_started_ = false;
  std::vector<OperatorRun> runs_;
  std::vector<Mark> marks_;  // the first num_marks_ are of this trace, the others wait for use
  size_t num_marks_ = 0;
};

}  // namespace atom
