// Inside rms_norm on a GPU: the threads of a row, and the arithmetic of its vectors.
#pragma once

#include <cstring>

#include "ops/device/elements.cuh"
#include "ops/device/reductions.cuh"
#include "ops/quantize/quantize_device.cuh"

namespace atom::ops::device::rms_norm {

constexpr int kWarpsPerBlock = 4;  // of short rows, one each

// The value of an element before any quantization, as ops::rms_norm rounds it.
template <typename T, typename W>
__device__ inline float normalized(float x, float scale, float weight) {
  float y = x * scale;
  if constexpr (sizeof(W) == sizeof(T)) y = round_to<T>(y);
  return round_to<T>(weight * y);
}

// The same of a vector.
template <typename T, typename W>
__device__ inline uint4 normalized(const uint4& bits,
                                   float scale,
                                   const Pack<W, Vector<T>::kLength>& weight) {
  constexpr int kLength = Vector<T>::kLength;
  float y[kLength];
  to_floats<T>(bits, y);
#pragma unroll
  for (int i = 0; i < kLength; ++i) y[i] *= scale;
  if constexpr (sizeof(W) == 2) {
    uint4 weight_bits;
    memcpy(&weight_bits, &weight, sizeof weight);
    return multiply_pairs<T>(bits_of<T>(y), weight_bits);
  } else {
#pragma unroll
    for (int i = 0; i < kLength; ++i) y[i] *= weight.element[i];
    return bits_of<T>(y);
  }
}

// The threads of one row: one of a block's warps, or a block, which has kLanes threads unless that
// is kAnyLanes. Vector v of lane l of n lanes holds the elements from (v * n + l) * kLength on.
// Sums are those of kFold * n lanes.
constexpr int kOneWarp = 0, kAnyLanes = -1;
template <typename T, int kFoldOfLanes, int kLanes>
struct Team {
  static constexpr int kFold = kFoldOfLanes;
  static constexpr int kLength = Vector<T>::kLength;
  static constexpr bool kBlock = kLanes != kOneWarp;
  int size;

  __device__ int lane() const { return kBlock ? threadIdx.x : threadIdx.x % kWarpSize; }
  __device__ int lanes() const {
    return kLanes == kAnyLanes  ? static_cast<int>(blockDim.x)
           : kLanes == kOneWarp ? kWarpSize
                                : kLanes;
  }
  __device__ int first_of(int v) const { return (v * lanes() + lane()) * kLength; }
  __device__ bool has(int v) const { return first_of(v) < size; }
  __device__ int64_t row() const {
    return kBlock ? blockIdx.x : int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / kWarpSize;
  }
  __device__ float sum(float (&values)[kFold], float* scratch) const {
    return kBlock ? reduce_block(values, scratch, Sum())
                  : reduce_lanes(values[0], kWarpSize, Sum());
  }
  __device__ float largest(float value, float* scratch) const {
    return kBlock ? reduce_block(value, scratch, Largest())
                  : reduce_lanes(value, kWarpSize, Largest());
  }
};

template <typename T>
__device__ inline uint4 sum_of(const uint4& x, const uint4& residual) {
  constexpr int kLength = Vector<T>::kLength;
  float sum[kLength], other[kLength];
  to_floats<T>(x, sum);
  to_floats<T>(residual, other);
#pragma unroll
  for (int i = 0; i < kLength; ++i) sum[i] += other[i];
  return bits_of<T>(sum);
}

// A team's vectors of a row as FP8, with one scale.
template <typename T, bool kBounded, int kVectors, typename Team>
__device__ inline void store_codes(const Team& team,
                                   const uint4 (&value)[kVectors],
                                   float scale,
                                   Float8* out) {
  using Codes = Pack<Float8, Team::kLength>;
  quantize_vectors<T, kBounded>(value, scale, [&](int v, const Codes& codes) {
    if (team.has(v)) *reinterpret_cast<Codes*>(out + team.first_of(v)) = codes;
  });
}

// The same with scales of groups.
template <typename T, int kVectors, typename Team>
__device__ inline void store_groups(const Team& team,
                                    const uint4 (&value)[kVectors],
                                    float* scales,
                                    Float8* out) {
  using Codes = Pack<Float8, Team::kLength>;
  quantize_groups<T>(
      value,
      [&](int v, float scale) {
        if (team.has(v)) scales[team.first_of(v) / kQuantGroupSize] = scale;
      },
      [&](int v, const Codes& codes) {
        if (team.has(v)) *reinterpret_cast<Codes*>(out + team.first_of(v)) = codes;
      });
}

}  // namespace atom::ops::device::rms_norm
