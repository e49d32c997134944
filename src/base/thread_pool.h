// The thread pool that CPU kernels run on. One per device; sized once; no oversubscription. The
// caller takes part as worker 0, so a pool of n runs n - 1 threads. Workers spin for a short while
// between regions, because a decode step is hundreds of them, and sleep when the engine is idle.
//
// Where others compete for the cores, a region does not wait for workers that have not come to it,
// and for a while fewer are asked to come (ThreadLimit).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace atom {

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Grows with every region and parallel_for, so that another thread can tell slow from stuck.
  uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }

  // Threads that take part in a region now, the caller among them: fewer than num_threads() while
  // others compete for the cores. For how to split work; read by the thread that starts regions.
  int num_active() const;

  // Calls task(worker) once per worker in [0, num_threads) and returns when all have returned.
  // One region at a time: calls come from one thread, and a task never starts another region.
  template <typename Task>
  void run(Task&& task) {
    using T = std::remove_reference_t<Task>;
    run_erased([](void* t, int worker) { (*static_cast<T*>(t))(worker); },
               const_cast<std::remove_const_t<T>*>(&task),
               true);
  }

  // The same for tasks that claim pieces of common work until there are none: once task(0) has
  // returned, workers that have not begun never will, and the others are waited for.
  template <typename Task>
  void share(Task&& task) {
    using T = std::remove_reference_t<Task>;
    run_erased([](void* t, int worker) { (*static_cast<T*>(t))(worker); },
               const_cast<std::remove_const_t<T>*>(&task),
               false);
  }

  // Calls body(begin, end) over disjoint chunks that cover [0, n). A chunk is `grain` items, the
  // last may be shorter; workers claim chunks as they come, so a slow core takes fewer.
  template <typename Body>
  void parallel_for(int64_t n, int64_t grain, Body&& body) {
    if (n <= 0) return;
    if (num_threads_ == 1 || n <= grain) {
      count_progress();
      body(int64_t{0}, n);
      return;
    }
    std::atomic<int64_t> next{0};
    share([&](int) {
      for (;;) {
        const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
        if (begin >= n) return;
        body(begin, begin + grain < n ? begin + grain : n);
      }
    });
  }

 private:
  using ErasedTask = void (*)(void*, int);
  struct Team;  // the threads and what they share

  void run_erased(ErasedTask task, void* argument, bool by_all);
  // Written by the one thread that calls.
  void count_progress() { progress_.store(progress() + 1, std::memory_order_relaxed); }

  const int num_threads_;
  std::unique_ptr<Team> team_;  // null of one thread
  std::atomic<uint64_t> progress_{0};
};

}  // namespace atom
