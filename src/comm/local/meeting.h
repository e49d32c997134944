// Where threads wait for each other, again and again, for a limited time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/mutex.h"

namespace atom {

class Meeting {
 public:
  explicit Meeting(int size) : size_(size) {}

  // Waits until all have come and returns true. False: it was cancelled, or the time is over. Then
  // there are no meetings any more.
  bool meet(std::chrono::milliseconds timeout);
  // Every call that waits and every later one returns false. From any thread.
  void cancel();

 private:
  // Spins, offers the core, then sleeps, until `round` has passed.
  bool wait_for(uint32_t round, std::chrono::milliseconds timeout);

  const int size_;
  // Own cache lines: the others spin on the second while they come.
  alignas(64) std::atomic<int> num_arrived_{0};
  alignas(64) std::atomic<uint32_t> num_rounds_{0};
  alignas(64) std::atomic<int> num_sleeping_{0};
  std::atomic<bool> is_cancelled_{false};
  // Guards nothing: held by who ends a round, so that who is about to sleep is not missed.
  Mutex mutex_;
  Condition ended_;
};

}  // namespace atom
