// Inside roofs: what is measured on a GPU.
#pragma once

#include "ops/roofs/roofs.h"

namespace atom::ops {

// `stream` is of a GPU.
Roofs measure_gpu_roofs(const Stream& stream, double seconds_each);

}  // namespace atom::ops
