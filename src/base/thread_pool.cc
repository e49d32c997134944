#include "base/thread_pool.h"

#include <immintrin.h>

#include "base/check.h"

namespace atom {
namespace {

// A worker that waits first pauses for some microseconds, the usual gap between two operators, then
// offers its core to whoever else is runnable (the engine's own threads between two steps), and at
// last sleeps.
constexpr int kPauses = 200;
constexpr int kYields = 100;

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
  for (int spins = 0; num_running_.load(std::memory_order_acquire) != 0; ++spins) {
    // A worker that lost its core may need ours.
    spins < kPauses ? _mm_pause() : std::this_thread::yield();
  }
}

void ThreadPool::worker_loop(int worker) {
  uint32_t seen = 0;
  for (;;) {
    for (int spins = 0; generation_.load(std::memory_order_acquire) == seen; ++spins) {
      if (spins < kPauses) {
        _mm_pause();
      } else if (spins < kPauses + kYields) {
        std::this_thread::yield();
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
