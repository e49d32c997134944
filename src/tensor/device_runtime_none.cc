// Builds without support for an accelerator.
#include "tensor/device_runtime.h"

namespace atom {

namespace {

Status no_runtime() {
  return unimplemented("this build of atom computes on the CPU alone; build the preset 'cuda'");
}

}  // namespace

Result<std::span<const DeviceFacts>> device_facts(DeviceType) {
  return no_runtime();
}

Result<DeviceRuntime*> device_runtime(Device) {
  return no_runtime();
}

std::string device_backends() {
  return "";
}

}  // namespace atom
