// Inside moe_route on a GPU: what a warp does with scores of its lanes, and choices as numbers that
// are larger for a better one.
#pragma once

#include "ops/device/reductions.cuh"

namespace atom::ops::device {

constexpr uint32_t kTaken = 0;

// Ascending in `choice`; NaN is as -infinity. Above kTaken.
__device__ inline uint32_t ordered_bits(float choice) {
  if (!(choice > -INFINITY)) choice = -INFINITY;
  if (choice == 0.0f) choice = 0.0f;  // -0 equals 0
  const uint32_t bits = __float_as_uint(choice);
  return bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
}

__device__ inline float from_ordered_bits(uint32_t ordered) {
  return __uint_as_float(ordered ^ ((ordered >> 31) != 0 ? 0x80000000u : 0xffffffffu));
}

__device__ inline uint32_t largest_of_lanes(uint32_t value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_max_sync(0xffffffffu, value);
#else
  return reduce_lanes(value, kWarpSize, Largest{});
#endif
}

// The id of the largest bits among all lanes' candidates, the lowest of equal ones.
__device__ inline int best_id(uint32_t ordered, int id) {
  const uint32_t best = largest_of_lanes(ordered);
  const uint32_t key = ordered == best ? ~static_cast<uint32_t>(id) : 0;
  return static_cast<int>(~largest_of_lanes(key));
}

// How many lanes' choices are larger, or equal and of a lower lane.
__device__ inline int rank_among_lanes(uint32_t choice) {
  const int lane = threadIdx.x % kWarpSize;
  int rank = 0;
#pragma unroll 16
  for (int i = 0; i < kWarpSize; ++i) {
    const uint32_t other = gpu_shuffle(choice, i);
    rank += other > choice || (other == choice && i < lane) ? 1 : 0;
  }
  return rank;
}

struct TwoLargest {
  uint32_t first = kTaken, second = kTaken;

  __device__ void see(uint32_t value) {
    second = max(second, min(first, value));
    first = max(first, value);
  }
  __device__ void unite_lanes() {
    const uint32_t largest = largest_of_lanes(first);
    const int owner = __ffs(static_cast<int>(gpu_lanes_where(first == largest))) - 1;
    const bool is_owner = static_cast<int>(threadIdx.x) % kWarpSize == owner;
    second = largest_of_lanes(is_owner ? second : first);
    first = largest;
  }
};

// The softmax over all lanes' scores. -infinity: not there.
template <int kPerLane>
__device__ inline void soften(float (&scores)[kPerLane]) {
  float largest = -INFINITY, sum = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) largest = fmaxf(largest, scores[i]);
  largest = reduce_lanes(largest, kWarpSize, Largest{});
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    scores[i] = expf(scores[i] - largest);
    sum += scores[i];
  }
  sum = reduce_lanes(sum, kWarpSize, Sum{});
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) scores[i] /= sum;
}

}  // namespace atom::ops::device
