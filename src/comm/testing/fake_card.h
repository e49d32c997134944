// A card for tests of what copies between host and card: memory of the host, and queues whose
// copies are done when somebody waits for them and no earlier.
#pragma once

#include <memory>

#include "tensor/device_runtime.h"

namespace atom {

std::unique_ptr<DeviceRuntime> make_fake_card();

}  // namespace atom
