// Builds without support for an accelerator.
#include "base/check.h"
#include "tensor/recorded_launches.h"

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

int64_t num_recorded_launches(const DeviceGraph&) {
  CHECK(false);  // nothing records
  return 0;
}

std::string device_backends() {
  return "";
}

}  // namespace atom
