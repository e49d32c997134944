// Reductions over the threads of a warp and of a block, in a fixed order.
#pragma once

#include "tensor/gpu_api.h"

namespace atom::ops {

constexpr int kWarpSize = 32;
constexpr unsigned kFullWarp = 0xffffffffu;

// The sum in every lane.
__device__ inline float warp_sum(float value) {
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kFullWarp, value, offset);
  }
  return value;
}

// The sum in every thread of a block of `kThreads`. `partial`: shared, one per warp.
template <int kThreads>
__device__ float block_sum(float value, float* partial) {
  constexpr int kWarps = kThreads / kWarpSize;
  value = warp_sum(value);
  const int warp = threadIdx.x / kWarpSize;
  if (threadIdx.x % kWarpSize == 0) partial[warp] = value;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < kWarps; ++i) sum += partial[i];
  __syncthreads();
  return sum;
}

}  // namespace atom::ops
