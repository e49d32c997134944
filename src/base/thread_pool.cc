#include "base/thread_pool.h"

#include <immintrin.h>

#include <chrono>

#include "base/check.h"

namespace atom {
namespace {

// A worker that waits first pauses for some microseconds, the usual gap between two operators, then
// offers its core to whoever else is runnable (the engine's own threads between two steps), and at
// last sleeps.
constexpr int kPauses = 200;
constexpr int kYields = 100;

// Yields while that is cheap. Where others compete for the cores, a thread that yields gets its own
// back milliseconds later: there it pauses for about as long as a cheap yield takes.
class Yielder {
 public:
  void yield() {
    const Clock::time_point before = Clock::now();
    if (before < pausing_until_) {
      for (int i = 0; i < kPausesPerYield; ++i) _mm_pause();
      return;
    }
    std::this_thread::yield();
    const Clock::time_point after = Clock::now();
    if (after - before > kCheap) pausing_until_ = after + kPausingTime;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kPausesPerYield = 20;
  static constexpr std::chrono::microseconds kCheap{100};
  static constexpr std::chrono::milliseconds kPausingTime{50};

  Clock::time_point pausing_until_{};
};

}  // namespace

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads) {
  CHECK(num_threads >= 1);
  for (int worker = 1; worker < num_threads; ++worker) {
    threads_.emplace_back([this, worker] { worker_loop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run_erased(ErasedTask task, void* argument) {
  count_progress();
  if (num_threads_ == 1) {
    task(argument, 0);
    return;
  }
  task_ = task;
  argument_ = argument;
  num_running_.store(num_threads_ - 1, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_seq_cst);
  if (num_sleeping_.load(std::memory_order_seq_cst) > 0) generation_.notify_all();
  task(argument, 0);
  thread_local Yielder yielder;
  for (int spins = 0; num_running_.load(std::memory_order_acquire) != 0; ++spins) {
    // A worker that lost its core may need ours.
    spins < kPauses ? _mm_pause() : yielder.yield();
  }
}

void ThreadPool::worker_loop(int worker) {
  uint32_t seen = 0;
  Yielder yielder;
  for (;;) {
    for (int spins = 0; generation_.load(std::memory_order_acquire) == seen; ++spins) {
      if (spins < kPauses) {
        _mm_pause();
      } else if (spins < kPauses + kYields) {
        yielder.yield();
      } else {
        num_sleeping_.fetch_add(1, std::memory_order_seq_cst);
        generation_.wait(seen, std::memory_order_seq_cst);
        num_sleeping_.fetch_sub(1, std::memory_order_seq_cst);
      }
    }
    // Regions never overlap, so the generation moved by exactly one.
    ++seen;
    if (stopping_.load(std::memory_order_acquire)) return;
    task_(argument_, worker);
    num_running_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace atom
