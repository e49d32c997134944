// SiLU and what is gated by a sigmoid, in device code.
#pragma once

#include "tensor/gpu_api.h"

namespace atom::ops::device {

// How exactly exponentials and quotients are computed: as well as float32 can, or to a few of its
// units in a few instructions instead of dozens, for results that are rounded to 16 bits. Of the
// latter, results below 1e-37 are zero.
enum class Silu { kExact, kBrief };

template <typename T>
constexpr Silu kSiluFor = sizeof(T) == 2 ? Silu::kBrief : Silu::kExact;

// value / (1 + exp(-gate)).
template <Silu kHow>
__device__ inline float sigmoid_gated(float value, float gate) {
  if constexpr (kHow == Silu::kBrief) {
    return __fdividef(value, 1.0f + __expf(-gate));
  } else {
    return value / (1.0f + expf(-gate));
  }
}

template <Silu kHow>
__device__ inline float silu(float x) {
  return sigmoid_gated<kHow>(x, x);
}

}  // namespace atom::ops::device
