// Which cards the kernels are compiled for, and which have kernels of their own.
#pragma once

#include "base/status.h"
#include "tensor/device_runtime.h"

namespace atom {

// An error that names the card and what would do where it is too old.
Status check_capability(const DeviceFacts& card);

// Compute capability 9. False for a CPU and where there is no such card.
bool is_hopper(Device device);

}  // namespace atom
