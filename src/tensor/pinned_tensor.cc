#include "tensor/pinned_tensor.h"

#include "tensor/device_runtime.h"

namespace atom {

Tensor pinned_tensor(Device device, const Shape& shape, DType dtype) {
  if (device.is_cpu()) return Tensor::empty(shape, dtype);
  const Result<DeviceRuntime*> runtime = device_runtime(device);
  CHECK(runtime.ok());
  std::shared_ptr<void> memory =
      (*runtime)->allocate_pinned(shape.num_elements() * dtype_size(dtype));
  void* data = memory.get();
  return Tensor(data, dtype, shape, std::move(memory));
}

}  // namespace atom
