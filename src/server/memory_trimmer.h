// Gives memory that large requests have used back to the system: the allocator alone keeps what its
// arenas have once had. One thread, which looks once a second.
#pragma once

#include <cstddef>
#include <functional>
#include <thread>

#include "base/mutex.h"

namespace atom::server {

class MemoryTrimmer {
 public:
  // `freed` tells how many bytes of large requests were freed since the start, from any thread.
  explicit MemoryTrimmer(std::function<size_t()> freed);
  ~MemoryTrimmer();
  MemoryTrimmer(const MemoryTrimmer&) = delete;
  MemoryTrimmer& operator=(const MemoryTrimmer&) = delete;

 private:
  void run();

  const std::function<size_t()> freed_;
  Mutex mutex_;
  Condition changed_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// For a process that serves: large blocks come from the system and go back to it as they are freed.
void set_up_allocator();

}  // namespace atom::server
