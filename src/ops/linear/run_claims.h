// Items [0, n) claimed one at a time by the workers of a region. Each worker walks a contiguous run
// of its own, so that it reads memory as one stream, and when that is used up takes items off the
// far ends of the others' runs, so that a slow core is helped. All workers use it at once.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "base/check.h"

namespace atom::ops {

class RunClaims {
 public:
  RunClaims(int64_t n, int num_workers) : num_runs_(std::min(num_workers, kMaxRuns)) {
    CHECK(n < int64_t{1} << 31);
    for (int i = 0; i < num_runs_; ++i) {
      runs_[i].range = join(n * i / num_runs_, n * (i + 1) / num_runs_);
    }
  }

  // The next item of `worker`, or -1 when all are claimed.
  int64_t claim(int worker) {
    const int own = worker % num_runs_;
    int64_t item = take(runs_[own], true);
    for (int i = 1; i < num_runs_ && item < 0; ++i)
      item = take(runs_[(own + i) % num_runs_], false);
    return item;
  }

 private:
  // Workers beyond share runs.
  static constexpr int kMaxRuns = 64;

  struct alignas(64) Run {
    std::atomic<uint64_t> range;  // begin in the high half, end in the low one
  };

  static uint64_t join(int64_t begin, int64_t end) {
    return static_cast<uint64_t>(begin) << 32 | static_cast<uint64_t>(end);
  }

  static int64_t take(Run& run, bool front) {
    uint64_t range = run.range.load(std::memory_order_relaxed);
    for (;;) {
      const int64_t begin = range >> 32;
      const int64_t end = range & 0xffffffffu;
      if (begin >= end) return -1;
      const uint64_t rest = front ? join(begin + 1, end) : join(begin, end - 1);
      if (run.range.compare_exchange_weak(range, rest, std::memory_order_relaxed)) {
        return front ? begin : end - 1;
      }
    }
  }

  const int num_runs_;
  std::array<Run, kMaxRuns> runs_;
};

}  // namespace atom::ops
