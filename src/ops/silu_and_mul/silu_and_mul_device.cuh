// Inside silu_and_mul: one product on the device, for whoever fuses it with something else.
#pragma once

#include "tensor/gpu_api.h"

namespace atom::ops {

__device__ inline float silu_product(float gate, float up) {
  return __fdividef(gate, 1.0f + __expf(-gate)) * up;
}

}  // namespace atom::ops
