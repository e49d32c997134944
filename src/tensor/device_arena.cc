#include "tensor/device_arena.h"

#include <new>

#include "base/human.h"

namespace atom {

DeviceArena::DeviceArena(Device device, std::shared_ptr<void> memory, int64_t capacity)
    : device_(device), memory_(std::move(memory)), capacity_(capacity) {}

Result<std::unique_ptr<DeviceArena>> DeviceArena::reserve(DeviceRuntime& runtime, int64_t bytes) {
  try {
    return std::unique_ptr<DeviceArena>(
        new DeviceArena(runtime.device(), runtime.allocate(bytes), bytes));
  } catch (const std::bad_alloc&) {
    return resource_exhausted("{} has no {} in one piece, with {} free: another process took it?",
                              runtime.facts().name,
                              human_bytes(bytes),
                              human_bytes(runtime.memory().free));
  }
}

Tensor DeviceArena::tensor(const Shape& shape, DType dtype) {
  const int64_t begin = used_;
  const int64_t bytes = shape.num_elements() * dtype_size(dtype);
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  CHECK(used_ <= capacity_);
  return Tensor(static_cast<char*>(memory_.get()) + begin, dtype, shape, memory_, device_);
}

Tensor resident_tensor(const Stream& stream, const Shape& shape, DType dtype) {
  if (stream.arena() != nullptr) return stream.arena()->tensor(shape, dtype);
  return Tensor::empty(shape, dtype, stream.device());
}

Tensor resident_copy(const Stream& stream, const Tensor& host) {
  CHECK(host.device().is_cpu());
  CHECK(host.is_contiguous());
  if (stream.device().is_cpu()) return host;
  const Tensor copy = resident_tensor(stream, host.shape(), host.dtype());
  stream.queue().copy(copy.raw_data(), host.raw_data(), host.num_bytes());
  stream.queue().synchronize();
  return copy;
}

}  // namespace atom
