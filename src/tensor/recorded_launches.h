// What a recorded piece of work is made of.
#pragma once

#include <cstdint>

#include "tensor/device_runtime.h"

namespace atom {

// The kernels, copies and fills that one launch of the graph runs.
int64_t num_recorded_launches(const DeviceGraph& graph);

}  // namespace atom
