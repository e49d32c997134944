// Which device an engine computes on.
#pragma once

#include "base/status.h"
#include "config/engine_config.h"
#include "tensor/device.h"

namespace atom {

// kAuto: a GPU when the build supports it and there is one, else the CPU. kCuda: an error where
// there is none, which says why.
Result<Device> choose_device(DeviceChoice choice);

}  // namespace atom
