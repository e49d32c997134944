#include "base/thread_pool.h"

#include <immintrin.h>
#include <pthread.h>
#include <time.h>

#include <chrono>
#include <limits>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/thread_limit.h"

namespace atom {
namespace {

using Clock = std::chrono::steady_clock;

// A thread that waits first pauses for some microseconds, the usual gap between two operators, then
// offers its core to whoever else is runnable (the engine's own threads between two steps), and at
// last sleeps.
constexpr int kPauses = 200;
constexpr int kYields = 100;
// The caller waits longer, for workers that are about to finish.
constexpr std::chrono::microseconds kCallerAwake{200};
// Time slices of others take longer than that, and those of threads that only pass by do not.
constexpr std::chrono::milliseconds kLate{1};
constexpr std::chrono::nanoseconds kNotInside{-1};
// Regions in a row that a worker misses before the time is asked for which it has been away.
constexpr int kMissedRegions = 8;

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
  static constexpr int kPausesPerYield = 20;
  static constexpr std::chrono::microseconds kCheap{100};
  static constexpr std::chrono::milliseconds kPausingTime{50};

  Clock::time_point pausing_until_{};
};

// A region's number, whether it is closed to those who have not begun, how many have begun and how
// many of them are not done, in one word.
constexpr uint64_t kOneBegun = 1 << 15;
constexpr uint64_t kCount = kOneBegun - 1;
constexpr uint64_t kClosed = uint64_t{1} << 31;

uint32_t region_of(uint64_t state) {
  return static_cast<uint32_t>(state >> 32);
}
uint64_t num_inside(uint64_t state) {
  return state & kCount;
}
uint64_t num_begun(uint64_t state) {
  return state / kOneBegun & kCount;
}

struct alignas(64) Worker {
  std::thread thread;
  clockid_t cpu_clock = 0;  // of the time that the thread has run
  std::atomic<bool> is_inside{false};

  std::chrono::nanoseconds cpu_time() const {
    timespec time = {};
    clock_gettime(cpu_clock, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
};

}  // namespace

// Cache lines of their own: all are contended.
struct ThreadPool::Team {
  explicit Team(int num_threads)
      : limit(num_threads), admitted(num_threads), workers(num_threads), cpu_times(num_threads) {}

  void work(int worker);
  uint32_t wait_for_region(int worker, uint32_t seen, Yielder& yielder);
  bool enter(uint32_t region);
  void leave(uint32_t region);

  uint32_t open(ErasedTask task, void* argument, int num_admitted);
  void admit(int num_threads);
  void close(uint32_t region, int num_admitted);
  void count_missing(int num_missing);
  void wait_until_finished(uint32_t region);
  void sleep_until_finished(uint32_t region);

  // The caller alone uses these.
  ThreadLimit limit;
  Yielder yielder;
  int num_missed = 0;  // regions in a row that not all who should came to
  Clock::time_point missed_since{};

  ErasedTask task_of_region = nullptr;
  void* argument_of_region = nullptr;
  // The number of the region that was opened last; workers wait for it to change.
  alignas(64) std::atomic<uint32_t> opened{0};
  alignas(64) std::atomic<uint64_t> state{kClosed};
  // The last region that ended while the caller waited for it.
  alignas(64) std::atomic<uint32_t> finished{0};
  std::atomic<bool> caller_sleeps{false};
  alignas(64) std::atomic<bool> any_sleeps{false};
  // Workers from here on stay away, and wait for it to change.
  std::atomic<int> admitted;
  std::atomic<bool> stopping{false};
  std::vector<Worker> workers;                      // [0] is the caller's place
  std::vector<std::chrono::nanoseconds> cpu_times;  // when the caller began to wait
};

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads) {
  CHECK(num_threads >= 1);
  CHECK(num_threads < static_cast<int>(kCount));
  if (num_threads == 1) return;
  team_ = std::make_unique<Team>(num_threads);
  for (int worker = 1; worker < num_threads; ++worker) {
    Worker& place = team_->workers[worker];
    place.thread = std::thread([this, worker] { team_->work(worker); });
    pthread_getcpuclockid(place.thread.native_handle(), &place.cpu_clock);
  }
}

ThreadPool::~ThreadPool() {
  if (team_ == nullptr) return;
  team_->stopping.store(true);
  team_->opened.fetch_add(1);
  team_->opened.notify_all();
  team_->admitted.store(std::numeric_limits<int>::max());
  team_->admitted.notify_all();
  for (int worker = 1; worker < num_threads_; ++worker) team_->workers[worker].thread.join();
}

int ThreadPool::num_active() const {
  return team_ == nullptr ? 1 : team_->limit.current();
}

void ThreadPool::run_erased(ErasedTask task, void* argument, bool by_all) {
  count_progress();
  if (num_threads_ == 1) return task(argument, 0);
  Team& team = *team_;
  if (!by_all && team.limit.is_lowered()) team.limit.raise(Clock::now());
  const int num_admitted = by_all ? num_threads_ : team.limit.current();
  if (num_admitted == 1) return task(argument, 0);
  const uint32_t region = team.open(task, argument, num_admitted);
  task(argument, 0);
  while (by_all && num_begun(team.state.load()) + 1 < static_cast<uint64_t>(num_threads_)) {
    team.yielder.yield();
  }
  team.close(region, num_admitted);
}

uint32_t ThreadPool::Team::open(ErasedTask task, void* argument, int num_admitted) {
  task_of_region = task;
  argument_of_region = argument;
  if (admitted.load(std::memory_order_relaxed) != num_admitted) admit(num_admitted);
  const uint32_t region = opened.load(std::memory_order_relaxed) + 1;
  state.store(uint64_t{region} << 32, std::memory_order_release);
  opened.store(region, std::memory_order_seq_cst);
  // Once for each sleep: a worker that was woken may have to wait for its core.
  if (any_sleeps.load(std::memory_order_seq_cst) && any_sleeps.exchange(false)) opened.notify_all();
  return region;
}

void ThreadPool::Team::admit(int num_threads) {
  admitted.store(num_threads);
  admitted.notify_all();
}

void ThreadPool::Team::close(uint32_t region, int num_admitted) {
  const uint64_t before = state.fetch_or(kClosed, std::memory_order_acq_rel);
  count_missing(num_admitted - 1 - static_cast<int>(num_begun(before)));
  if (num_inside(before) != 0) wait_until_finished(region);
}

// Workers that were woken and get no core.
void ThreadPool::Team::count_missing(int num_missing) {
  if (num_missing == 0) {
    num_missed = 0;
  } else if (++num_missed == kMissedRegions) {
    missed_since = Clock::now();
  } else if (num_missed > kMissedRegions) {
    const Clock::time_point now = Clock::now();
    if (now - missed_since < kLate) return;
    limit.lower(num_missing, kLate, now);
    num_missed = 0;
  }
}

void ThreadPool::Team::wait_until_finished(uint32_t region) {
  const auto is_finished = [&] { return finished.load(std::memory_order_acquire) == region; };
  for (int i = 0; i < kPauses; ++i) {
    if (is_finished()) return;
    _mm_pause();
  }
  const Clock::time_point begin = Clock::now();
  while (Clock::now() - begin < kCallerAwake) {
    if (is_finished()) return;
    yielder.yield();  // a worker that lost its core may need ours
  }
  sleep_until_finished(region);
}

// Meanwhile workers that are inside are watched for whether they run.
void ThreadPool::Team::sleep_until_finished(uint32_t region) {
  for (size_t i = 1; i < workers.size(); ++i) {
    cpu_times[i] = workers[i].is_inside.load() ? workers[i].cpu_time() : kNotInside;
  }
  const Clock::time_point begin = Clock::now();
  caller_sleeps.store(true, std::memory_order_seq_cst);
  for (uint32_t seen; (seen = finished.load(std::memory_order_seq_cst)) != region;) {
    finished.wait(seen, std::memory_order_seq_cst);
  }
  caller_sleeps.store(false, std::memory_order_relaxed);
  const Clock::time_point end = Clock::now();
  if (end - begin < kLate) return;
  int num_late = 0;
  for (size_t i = 1; i < workers.size(); ++i) {
    const bool was_inside = cpu_times[i] != kNotInside;
    num_late += was_inside && workers[i].cpu_time() - cpu_times[i] < (end - begin) / 2;
  }
  if (num_late > 0) limit.wait(num_late, end - begin, end);
}

void ThreadPool::Team::work(int worker) {
  Yielder own_yielder;
  for (uint32_t seen = 0;;) {
    seen = wait_for_region(worker, seen, own_yielder);
    if (stopping.load(std::memory_order_acquire)) return;
    if (!enter(seen)) continue;
    workers[worker].is_inside.store(true, std::memory_order_relaxed);
    task_of_region(argument_of_region, worker);
    workers[worker].is_inside.store(false, std::memory_order_relaxed);
    leave(seen);
  }
}

// Until another region than `seen` was opened; its number.
uint32_t ThreadPool::Team::wait_for_region(int worker, uint32_t seen, Yielder& own_yielder) {
  for (int spins = 0;; ++spins) {
    const uint32_t region = opened.load(std::memory_order_acquire);
    if (region != seen) {
      const int num_admitted = admitted.load(std::memory_order_seq_cst);
      if (worker < num_admitted) return region;
      admitted.wait(num_admitted, std::memory_order_seq_cst);
      spins = 0;
    } else if (spins < kPauses) {
      _mm_pause();
    } else if (spins < kPauses + kYields) {
      own_yielder.yield();
    } else {
      any_sleeps.store(true, std::memory_order_seq_cst);
      opened.wait(seen, std::memory_order_seq_cst);
    }
  }
}

// Whether that region is the open one.
bool ThreadPool::Team::enter(uint32_t region) {
  uint64_t now = state.load(std::memory_order_relaxed);
  while (region_of(now) == region && (now & kClosed) == 0) {
    if (state.compare_exchange_weak(now, now + kOneBegun + 1, std::memory_order_acq_rel)) {
      return true;
    }
  }
  return false;
}

void ThreadPool::Team::leave(uint32_t region) {
  const uint64_t before = state.fetch_sub(1, std::memory_order_acq_rel);
  if (num_inside(before) != 1 || (before & kClosed) == 0) return;
  finished.store(region, std::memory_order_seq_cst);
  if (caller_sleeps.load(std::memory_order_seq_cst)) finished.notify_one();
}

}  // namespace atom
