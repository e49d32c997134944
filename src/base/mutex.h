// std::mutex and what locks it, with the annotations of base/thread_annotations.h: what a mutex
// guards is checked by clang. As cheap as what they wrap.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/thread_annotations.h"

namespace atom {

class ATOM_CAPABILITY("mutex") Mutex {
 public:
  void lock() ATOM_ACQUIRE() { mutex_.lock(); }
  bool try_lock() ATOM_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void unlock() ATOM_RELEASE() { mutex_.unlock(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

// Holds a mutex while it lives, but between unlock() and lock().
class ATOM_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ATOM_ACQUIRE(mutex) : lock_(mutex->mutex_) {}
  // Adopts a mutex that try_lock() has taken.
  MutexLock(Mutex* mutex, std::adopt_lock_t taken) REQUIRES(mutex) : lock_(mutex->mutex_, taken) {}
  ~MutexLock() ATOM_RELEASE() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() ATOM_RELEASE() { lock_.unlock(); }
  void lock() ATOM_ACQUIRE() { lock_.lock(); }

 private:
  friend class Condition;
  std::unique_lock<std::mutex> lock_;
};

// std::condition_variable for a MutexLock. Waits may end without cause: wait in a loop, whose
// condition is then checked like all code (that of a lambda would not be).
class Condition {
 public:
  void wait(MutexLock* lock) { condition_.wait(lock->lock_); }
  template <typename Clock, typename Duration>
  std::cv_status wait_until(MutexLock* lock, const std::chrono::time_point<Clock, Duration>& time) {
    return condition_.wait_until(lock->lock_, time);
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace atom
