// SiLU in device code.
#pragma once

#include "tensor/gpu_api.h"

namespace atom::ops::device {

// x / (1 + exp(-x)), for a result that is rounded to T: to a few units of float32 where T has 16
// bits, which takes a few instructions instead of dozens.
template <typename T>
__device__ inline float silu(float x) {
  if constexpr (sizeof(T) == 4) {
    return x / (1.0f + expf(-x));
  } else {
    return __fdividef(x, 1.0f + __expf(-x));
  }
}

}  // namespace atom::ops::device
