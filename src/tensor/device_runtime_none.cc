// Builds without support for an accelerator.
#include "tensor/device_runtime.h"

namespace atom {

Result<DeviceRuntime*> device_runtime(DeviceType) {
  return unimplemented("this build of atom computes on the CPU alone; build the preset 'cuda'");
}

std::string device_backends() {
  return "";
}

}  // namespace atom
