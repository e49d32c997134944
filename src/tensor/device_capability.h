// Which cards the kernels are compiled for.
#pragma once

#include "base/status.h"
#include "tensor/device_runtime.h"

namespace atom {

// An error that names the card and what would do where it is too old.
Status check_capability(const DeviceFacts& card);

}  // namespace atom
