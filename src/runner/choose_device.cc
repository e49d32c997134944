#include "runner/choose_device.h"

#include "tensor/device_runtime.h"

namespace atom {

Result<Device> choose_device(DeviceChoice choice) {
  if (choice == DeviceChoice::kCpu) return Device();
  const Result<DeviceRuntime*> runtime = device_runtime(DeviceType::kCuda);
  if (runtime.ok()) return (*runtime)->device();
  if (choice == DeviceChoice::kAuto) return Device();
  const Status& status = runtime.status();
  return Status(status.code(), status.message() + ". --device cpu computes without a GPU")
      .with_context("--device cuda");
}

}  // namespace atom
