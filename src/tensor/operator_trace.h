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

  // Longer than the host takes to launch a step of hundreds of operators.
  static constexpr std::chrono::milliseconds kHeadStart{20};

  // Forgets what was noted before. A queue is held up for `head_start`: then the host is ahead of
  // it and no operator waits to be launched.
  void start(std::chrono::nanoseconds head_start = {});
  // An operator begins. Names live as long as the program.
  void begin(std::string_view op, std::string_view variant, const OperatorWork& work);
  bool is_started() const { return is_started_; }

  using Clock = std::chrono::steady_clock;
  // A point in the work of the queue or of the calling thread.
  struct Mark {
    std::unique_ptr<DeviceEvent> event;  // null on the CPU
    Clock::time_point time;
  };
  // Operators whose times are known once the queue has passed their end.
  struct Noted {
    std::vector<OperatorRun> runs;
    std::vector<Mark> marks;  // where each begins, and the end
  };
  // Ends the last operator.
  Noted end();
  // Its operators with their times. The queue, if there is one, has passed the end.
  std::vector<OperatorRun> measured(Noted noted);
  // Ends the last operator and waits for it.
  std::vector<OperatorRun> stop();

 private:
  void mark();

  DeviceQueue* queue_ = nullptr;
  bool is_started_ = false;
  Noted noted_;
  std::vector<Mark> spare_marks_;
};

}  // namespace atom
