// Inside fused_moe on a GPU: a token's choices by the lanes of a warp, one each, so that what is
// known of them is on its way at once.
#pragma once

#include "ops/device/async_copy.cuh"
#include "ops/fused_moe/moe_device.cuh"

namespace atom::ops::device {

// A bit for each of the token's choices from `first` on, up to 32, that has an expert here.
__device__ inline uint32_t existing_choices(const FusedMoeGpuCall& call, int token, int first) {
  const int j = first + static_cast<int>(threadIdx.x) % kWarpSize;
  return gpu_lanes_where(j < call.top_k && place_of(call, token * call.top_k + j) >= 0);
}

// To `target`, as vectors where it is aligned to them.
template <typename Y, int kCount>
__device__ inline void store_rounded(const float (&values)[kCount], Y* target) {
  constexpr int kLength = kCount < Vector<Y>::kLength ? kCount : Vector<Y>::kLength;
  using Part = Pack<Y, kLength>;
#pragma unroll
  for (int first = 0; first < kCount; first += kLength) {
    Part part;
#pragma unroll
    for (int i = 0; i < kLength; ++i) part.element[i] = from_float<Y>(values[first + i]);
    if (reinterpret_cast<uintptr_t>(target) % sizeof(Part) == 0) {
      *reinterpret_cast<Part*>(target + first) = part;
      continue;
    }
#pragma unroll
    for (int i = 0; i < kLength; ++i) target[first + i] = part.element[i];
  }
}

}  // namespace atom::ops::device
