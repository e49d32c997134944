// Which device an engine computes on.
#pragma once

#include "base/status.h"
#include "config/engine_config.h"
#include "config/resolve.h"
#include "tensor/device.h"

namespace atom {

// kAuto: a GPU when the build supports it and there is one, else the CPU. kCuda: an error where
// there is none, which says why. `index` is that of the card.
Result<Device> choose_device(DeviceChoice choice, int index = 0);

// That of an engine's first rank, where it computes on cards of this node: the others have those
// behind it. To be called before anything else is asked of cards, as several ranks need kernels to
// be loaded at once.
Result<Device> choose_device(const DeviceConfig& device, const ParallelConfig& parallel);

// An error where an engine's ranks have too few cards, or ask of them what only the CPU can.
Status check_cards(const ResolvedConfig& config, Device first);

}  // namespace atom
