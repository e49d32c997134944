// Which device an engine computes on.
#pragma once

#include <string>

#include "base/status.h"
#include "config/engine_config.h"
#include "config/resolve.h"
#include "tensor/device.h"

namespace atom {

// kAuto: a GPU when the build supports it and there is one, else the CPU. kCuda: an error where
// there is none, which says why. `index` is that of the card.
Result<Device> choose_device(DeviceChoice choice, int index = 0);

// That of an engine's first rank on this node: the others have the cards behind it.
Result<Device> choose_device(const DeviceConfig& device);

// "NVIDIA H200", or "CPU".
Result<std::string> kind_of(Device device);

// An error where an engine's ranks on this node have too few cards.
Status check_cards(const ResolvedConfig& config, Device first);

}  // namespace atom
