// What an accelerator offers: memory, queues of work, copies, captured graphs. One implementation
// for each runtime that a build has; device_runtime() is the only place that knows which.
//
// An error that a runtime reports is not answered: the device's state is unknown from there on, so
// the process ends with the runtime's message and its supervisor starts it again.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace atom {

// Uniform pseudo-random values that depend on the key and the element's index only.
struct RandomFill {
  uint64_t key = 0;
  float center = 0;
  float half_width = 0;     // floating point dtypes: center +- half_width
  uint8_t byte_mask = 255;  // dtypes of one byte: random bits, masked
};

// Work of a queue that was recorded once and runs again as a whole. Addresses are those of the
// recording.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Enqueues the work on the queue that recorded it.
  virtual void launch() = 0;
};

// A point in a queue's work that the host can ask for and wait for; it may be marked many times.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // Moves it behind all work enqueued so far.
  virtual void mark() = 0;
  // The queue has passed the mark.
  virtual bool is_done() const = 0;
  virtual void wait() const = 0;
  // By the device's clock, between two marks that were passed.
  virtual std::chrono::nanoseconds since(const DeviceEvent& earlier) const = 0;
};

// Work in order. One thread at a time.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;

  virtual Device device() const = 0;
  // The runtime's own handle (a cudaStream_t), for kernel launches.
  virtual void* handle() const = 0;

  // Between device and host in either direction, or within the device. The call returns before
  // the copy is done where host memory is pinned.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  // `num_rows` rows of `row_size` bytes, strides in bytes.
  virtual void copy_rows(void* to,
                         int64_t to_stride,
                         const void* from,
                         int64_t from_stride,
                         int64_t row_size,
                         int64_t num_rows) = 0;
  // Every byte of `num_rows` rows of `row_size` bytes becomes `value`; stride in bytes.
  virtual void fill_rows(
      void* data, int64_t stride, uint8_t value, int64_t row_size, int64_t num_rows) = 0;
  void fill_zero(void* data, int64_t bytes) { fill_rows(data, bytes, 0, bytes, 1); }
  virtual void fill_random(void* data, DType dtype, int64_t count, const RandomFill& fill) = 0;

  // Waits until all work is done.
  virtual void synchronize() = 0;
  virtual std::unique_ptr<DeviceEvent> create_event() = 0;
  // Lets the device do nothing for so long, for the host to get ahead of it.
  virtual void delay(std::chrono::nanoseconds duration) = 0;

  // What is enqueued between the two is recorded, not run. What the runtime does not record is an
  // error at the end; a launch that it refuses meanwhile is part of that.
  virtual void begin_recording() = 0;
  virtual Result<std::unique_ptr<DeviceGraph>> end_recording() = 0;
};

struct DeviceFacts {
  std::string name;  // "NVIDIA H200"
  int capability_major = 0;
  int capability_minor = 0;
  int num_multiprocessors = 0;
  std::string driver_version;   // of CUDA's driver interface, "13.0"
  std::string runtime_version;  // that this program was built with
};

// One card. What a thread launches goes to the card that is current for it, whatever queue it
// names: make_current() is for threads that have made neither a queue nor memory of the card, both
// of which make it current, too. A thread that works for several cards changes between them.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  virtual Device device() const = 0;
  virtual const DeviceFacts& facts() const = 0;

  // For the calling thread.
  virtual void make_current() const = 0;
  // Kernels of this card can read and write the other's memory.
  virtual bool can_reach(const DeviceRuntime& other) const = 0;

  struct Memory {
    int64_t free = 0;  // bytes, of all processes together
    int64_t total = 0;
  };
  virtual Memory memory() const = 0;

  // Memory of the device; throws std::bad_alloc. Freed with its last owner.
  virtual std::shared_ptr<void> allocate(int64_t bytes) = 0;
  // Calls of allocate() so far: does not grow once an engine is ready.
  virtual int64_t num_allocations() const = 0;
  // Host memory that the device copies from and to without the processor; throws std::bad_alloc.
  virtual std::shared_ptr<void> allocate_pinned(int64_t bytes) = 0;

  virtual std::unique_ptr<DeviceQueue> create_queue() = 0;
};

// The cards of that type that this process sees, in the order of their indices; an error says why
// there is none: the build has no support for it, no driver, no card, cards too old. Takes no
// memory of any card. From any thread.
Result<std::span<const DeviceFacts>> device_facts(DeviceType type);

// The runtime of a card, which lives as long as the program; the first call for each takes some of
// its memory. An error says why it cannot be used. Cards that one process uses are alike: another
// than the first is refused. From any thread.
Result<DeviceRuntime*> device_runtime(Device device);
// Of the first card.
inline Result<DeviceRuntime*> device_runtime(DeviceType type) {
  return device_runtime(Device{type, 0});
}

// What this build can compute on besides the CPU: "CUDA 13.0", or "".
std::string device_backends();

}  // namespace atom
