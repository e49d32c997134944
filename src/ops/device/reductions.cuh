// Reductions over a group of lanes and over a block, in an order that is the same every time.
#pragma once

#include "tensor/gpu_api.h"

namespace atom::ops::device {

constexpr int kWarpSize = 32;  // of the algorithms; a hardware wave may be two of them

template <typename T>
__device__ inline T exchange(T value, int lane_mask) {
  return gpu_shuffle_xor(value, lane_mask);
}

struct Sum {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

struct Largest {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

// Over each aligned group of `lanes` lanes (a power of two, at most 32); every lane gets it.
template <typename T, typename Operation>
__device__ inline T reduce_lanes(T value, int lanes, Operation operation) {
  for (int mask = lanes / 2; mask > 0; mask /= 2) value = operation(value, exchange(value, mask));
  return value;
}

// Over the block, whose size is a multiple of 32; every thread gets it. T{} changes nothing when
// combined with a value. A thread stands for kFold threads of a block kFold times as large, of the
// indices threadIdx.x + i * blockDim.x: the order, and so the result, is that block's. `scratch`
// has room for 32 values and may be used again after a barrier.
template <int kFold, typename T, typename Operation>
__device__ inline T reduce_block(T (&value)[kFold], T* scratch, Operation operation) {
#pragma unroll
  for (int i = 0; i < kFold; ++i) value[i] = reduce_lanes(value[i], kWarpSize, operation);
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  const int num_warps = blockDim.x / kWarpSize;
  if (kFold * num_warps == 1) return value[0];
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < kFold; ++i) scratch[i * num_warps + warp] = value[i];
  }
  __syncthreads();
  return reduce_lanes(lane < kFold * num_warps ? scratch[lane] : T{}, kWarpSize, operation);
}

template <typename T, typename Operation>
__device__ inline T reduce_block(T value, T* scratch, Operation operation) {
  T values[1] = {value};
  return reduce_block(values, scratch, operation);
}

}  // namespace atom::ops::device
