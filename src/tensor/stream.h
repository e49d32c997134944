// What an operator launches on: a device and its queue of work. On the CPU the queue is the calling
// thread, which spreads each operator over a thread pool and returns when it is done. On an
// accelerator operators return once their work is enqueued.
#pragma once

#include "base/thread_pool.h"
#include "tensor/device.h"
#include "tensor/device_runtime.h"

namespace atom {

class DeviceArena;
class OperatorTrace;

class Stream {
 public:
  // The CPU. `pool` outlives the stream.
  explicit Stream(ThreadPool* pool) : pool_(pool) {}
  // An accelerator; the pool does what is left to the host. `arena`, which may be null, holds the
  // tensors that stay. All outlive the stream.
  Stream(ThreadPool* pool, DeviceQueue* queue, DeviceArena* arena = nullptr)
      : device_(queue->device()), pool_(pool), queue_(queue), arena_(arena) {}

  // A stream on which operators check their contracts and do nothing else: the forward pass of the
  // largest step runs on it once to measure the workspace.
  static Stream dry_run(Device device = {}) {
    Stream stream(nullptr);
    stream.device_ = device;
    return stream;
  }

  bool is_dry_run() const { return pool_ == nullptr; }
  Device device() const { return device_; }
  ThreadPool& pool() const { return *pool_; }
  // Of an accelerator.
  DeviceQueue& queue() const { return *queue_; }
  DeviceArena* arena() const { return arena_; }

  // Operators compute each row of a result in the same way whatever other rows a call has.
  bool has_fixed_rows() const { return has_fixed_rows_; }
  void set_fixed_rows(bool fixed) { has_fixed_rows_ = fixed; }

  // Null unless operators are to be noted. It outlives the stream and its copies.
  OperatorTrace* trace() const { return trace_; }
  void set_trace(OperatorTrace* trace) { trace_ = trace; }

 private:
  Device device_;
  ThreadPool* pool_;
  DeviceQueue* queue_ = nullptr;
  DeviceArena* arena_ = nullptr;
  OperatorTrace* trace_ = nullptr;
  bool has_fixed_rows_ = false;
};

}  // namespace atom
