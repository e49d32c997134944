// Words that blocks of a running grid leave for each other in global memory, each of which says by
// its value that it is there. Nothing else is ordered by them.
#pragma once

#include <cstdint>

#include "tensor/gpu_api.h"

namespace atom::ops::device {

__device__ inline void store_for_others(void* place, uint32_t word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(place), "r"(word) : "memory");
}

// Four words, at a multiple of 16 bytes.
__device__ inline uint4 load_of_others(const void* place) {
  uint4 words;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(place)
               : "memory");
  return words;
}

}  // namespace atom::ops::device
