// SiLU in device code.
#pragma once

#include "tensor/gpu_api.h"

namespace atom::ops::device {

// How exactly x / (1 + exp(-x)) is computed: as well as float32 can, or to a few of its units in a
// few instructions instead of dozens, for results that are rounded to 16 bits. Of the latter,
// results below 1e-37 are zero.
enum class Silu { kExact, kBrief };

template <Silu kHow>
__device__ inline float silu(float x) {
  if constexpr (kHow == Silu::kBrief) {
    return __fdividef(x, 1.0f + __expf(-x));
  } else {
    return x / (1.0f + expf(-x));
  }
}

}  // namespace atom::ops::device
