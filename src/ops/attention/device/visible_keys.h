// Inside attention: what the kernels of decode/, prefill/ and fixed/ share. Beside what
// attention_args.h says, their strides are multiples of 8 elements, their rows begin at multiples
// of 16 bytes, and they skip sequences of length 0.
#pragma once

#include <cstdint>

#include "ops/attention/attention_args.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

// First position that the query at `position` sees.
inline __host__ __device__ int32_t first_visible_key(int32_t position, int32_t sliding_window) {
  const int32_t first = position - sliding_window + 1;
  return sliding_window == 0 || first < 0 ? 0 : first;
}

}  // namespace atom::ops
