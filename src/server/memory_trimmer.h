// Gives memory that large requests have used back to the system: the allocator alone keeps what its
// arenas have once had. One thread, which looks once a second.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>

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
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

// For a process that serves: large blocks come from the system and go back to it as they are freed.
void set_up_allocator();

}  // namespace atom::server
