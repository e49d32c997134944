#include "comm/local/meeting.h"

#include <immintrin.h>

#include <thread>

namespace atom {
namespace {

// The others are microseconds behind in a step of equal shares, and have a core each or need ours.
constexpr int kMeetingPauses = 500;
constexpr int kMeetingYields = 200;

}  // namespace

bool Meeting::meet(std::chrono::milliseconds timeout) {
  if (is_cancelled_.load(std::memory_order_acquire)) return false;
  const uint32_t round = num_rounds_.load(std::memory_order_acquire);
  if (num_arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < size_) {
    return wait_for(round, timeout);
  }
  num_arrived_.store(0, std::memory_order_relaxed);
  num_rounds_.store(round + 1, std::memory_order_seq_cst);
  if (num_sleeping_.load(std::memory_order_seq_cst) > 0) {
    const MutexLock lock(&mutex_);
    ended_.notify_all();
  }
  return true;
}

bool Meeting::wait_for(uint32_t round, std::chrono::milliseconds timeout) {
  const auto has_ended = [&] {
    return num_rounds_.load(std::memory_order_seq_cst) != round ||
           is_cancelled_.load(std::memory_order_acquire);
  };
  for (int i = 0; i < kMeetingPauses + kMeetingYields; ++i) {
    if (has_ended()) return num_rounds_.load() != round;
    i < kMeetingPauses ? _mm_pause() : std::this_thread::yield();
  }
  const auto end = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(&mutex_);
  num_sleeping_.fetch_add(1, std::memory_order_seq_cst);
  bool ended = has_ended();
  for (bool in_time = true; !ended && in_time; ended = has_ended()) {
    in_time = ended_.wait_until(&lock, end) == std::cv_status::no_timeout;
  }
  num_sleeping_.fetch_sub(1, std::memory_order_relaxed);
  if (ended) return num_rounds_.load() != round;
  lock.unlock();
  cancel();
  // The last of them may have come meanwhile.
  return num_rounds_.load() != round;
}

void Meeting::cancel() {
  const MutexLock lock(&mutex_);
  is_cancelled_.store(true, std::memory_order_release);
  ended_.notify_all();
}

}  // namespace atom
