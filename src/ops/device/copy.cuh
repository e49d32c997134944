// Copies of rows of bytes by the threads of a block.
#pragma once

#include <stdint.h>

#include "tensor/gpu_api.h"

namespace atom::ops {

// 16 bytes at a time where both sides and the size allow it, else 2 or 1.
__device__ inline void copy_row(void* to, const void* from, int64_t size) {
  const auto bits = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) |
                    static_cast<uintptr_t>(size);
  if (bits % sizeof(uint4) == 0) {
    for (int64_t i = threadIdx.x; i < size / int64_t{sizeof(uint4)}; i += blockDim.x) {
      static_cast<uint4*>(to)[i] = static_cast<const uint4*>(from)[i];
    }
  } else if (bits % sizeof(uint16_t) == 0) {
    for (int64_t i = threadIdx.x; i < size / int64_t{sizeof(uint16_t)}; i += blockDim.x) {
      static_cast<uint16_t*>(to)[i] = static_cast<const uint16_t*>(from)[i];
    }
  } else {
    for (int64_t i = threadIdx.x; i < size; i += blockDim.x) {
      static_cast<uint8_t*>(to)[i] = static_cast<const uint8_t*>(from)[i];
    }
  }
}

}  // namespace atom::ops
