// What an operator launches on: a device and its queue of work. On the CPU the queue is the calling
// thread, which spreads each operator over a thread pool and returns when it is done.
#pragma once

#include "base/thread_pool.h"
#include "tensor/device.h"

namespace atom {

class Stream {
 public:
  // `pool` outlives the stream.
  explicit Stream(ThreadPool* pool) : pool_(pool) {}

  // A stream on which operators check their contracts and do nothing else: the forward pass of the
  // largest step runs on it once to measure the workspace.
  static Stream dry_run() { return Stream(nullptr); }

  bool is_dry_run() const { return pool_ == nullptr; }
  Device device() const { return {}; }
  ThreadPool& pool() const { return *pool_; }

 private:
  ThreadPool* pool_;
};

}  // namespace atom
