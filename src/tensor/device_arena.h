// One reservation of device memory, cut into tensors from its beginning. Nothing is given back
// before all of it goes with the last tensor. One thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "tensor/device_runtime.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom {

class DeviceArena {
 public:
  // What a tensor's size is rounded up to.
  static constexpr int64_t kAlignment = 256;  // bytes

  // An error when the device does not have the memory.
  static Result<std::unique_ptr<DeviceArena>> reserve(DeviceRuntime& runtime, int64_t bytes);

  // Uninitialised. More than was reserved is our own mistake.
  Tensor tensor(const Shape& shape, DType dtype);

  int64_t used() const { return used_; }

 private:
  DeviceArena(Device device, std::shared_ptr<void> memory, int64_t capacity);

  Device device_;
  std::shared_ptr<void> memory_;
  int64_t capacity_;
  int64_t used_ = 0;
};

// Uninitialised memory that stays: of the stream's arena when it has one, else of its own.
Tensor resident_tensor(const Stream& stream, const Shape& shape, DType dtype);

// A contiguous tensor of the CPU where the stream works: the same on the CPU, else a copy that
// stays. Waits for the copy.
Tensor resident_copy(const Stream& stream, const Tensor& host);

}  // namespace atom
