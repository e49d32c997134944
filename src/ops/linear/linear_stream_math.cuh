// Inside the streaming linear: how 64 bytes of 16 weight rows meet up to 8 rows of x in the tensor
// cores, per combination of element types.
//
// A product of a 16 x k tile of W and a k x 8 tile of x^T does not care in which order k is
// visited, as long as both sides agree. So lane (g, t) = (lane / 4, lane % 4) reads the 16 adjacent
// bytes t of the 64 from its rows g and g + 8, and the matching elements of row g of x, and hands
// them to the tensor cores four elements at a time.
#pragma once

#include <cstdint>

#include "ops/device/elements.cuh"

namespace atom::ops::device {

// c += a b^T: a holds rows g and g + 8 of two pairs of k, b the same of x.
template <typename T>
__device__ inline void multiply_tile(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

template <>
__device__ inline void multiply_tile<BFloat16>(float (&c)[4],
                                               const uint32_t (&a)[4],
                                               const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <>
__device__ inline void multiply_tile<Half>(float (&c)[4],
                                           const uint32_t (&a)[4],
                                           const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Two FP8 elements as two of T, exactly.
template <typename T>
__device__ inline uint32_t expand_pair(uint32_t pair);

template <>
__device__ inline uint32_t expand_pair<Half>(uint32_t pair) {
  uint32_t result;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(result) : "h"(static_cast<uint16_t>(pair)));
  return result;
}

template <>
__device__ inline uint32_t expand_pair<BFloat16>(uint32_t pair) {
  const uint32_t halves = expand_pair<Half>(pair);
  const float2 floats = __half22float2(*reinterpret_cast<const __half2*>(&halves));
  const gpu_bfloat162 result = __floats2bfloat162_rn(floats.x, floats.y);
  return *reinterpret_cast<const uint32_t*>(&result);
}

template <typename T>
__device__ inline void expand_vector(const uint4& packed, uint32_t (&pairs)[8]) {
  const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    pairs[2 * i] = expand_pair<T>(words[i]);
    pairs[2 * i + 1] = expand_pair<T>(words[i] >> 16);
  }
}

// Weight and x of the same 16-bit type.
template <typename T>
struct SameTypeMath {
  static constexpr int kVectors = 1;     // 16-byte vectors of x that match 16 bytes of a weight row
  static constexpr int kWeightSize = 2;  // bytes
  static constexpr int kXSize = 2;

  template <int kTokenTiles>
  static __device__ void accumulate(const uint4& low,
                                    const uint4& high,
                                    const uint4 (&x)[kTokenTiles][kVectors],
                                    float (&c)[kTokenTiles][4]) {
    const uint32_t a[2][4] = {{low.x, high.x, low.y, high.y}, {low.z, high.z, low.w, high.w}};
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      multiply_tile<T>(c[n], a[0], {x[n][0].x, x[n][0].y});
      multiply_tile<T>(c[n], a[1], {x[n][0].z, x[n][0].w});
    }
  }
};

// An FP8 weight, expanded to T, with x of T.
template <typename T>
struct ExpandedMath {
  static constexpr int kVectors = 2;
  static constexpr int kWeightSize = 1;
  static constexpr int kXSize = 2;

  template <int kTokenTiles>
  static __device__ void accumulate(const uint4& low,
                                    const uint4& high,
                                    const uint4 (&x)[kTokenTiles][kVectors],
                                    float (&c)[kTokenTiles][4]) {
    uint32_t lows[8], highs[8];
    expand_vector<T>(low, lows);
    expand_vector<T>(high, highs);
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int j = 4 * i;
        multiply_tile<T>(
            c[n], {lows[j], highs[j], lows[j + 1], highs[j + 1]}, {x[n][i].x, x[n][i].y});
        multiply_tile<T>(
            c[n], {lows[j + 2], highs[j + 2], lows[j + 3], highs[j + 3]}, {x[n][i].z, x[n][i].w});
      }
    }
  }
};

// FP8 on both sides. Every FP8 value is a float16 and every product of two is exact in float32.
struct Float8Math {
  static constexpr int kVectors = 1;
  static constexpr int kWeightSize = 1;
  static constexpr int kXSize = 1;

  template <int kTokenTiles>
  static __device__ void accumulate(const uint4& low,
                                    const uint4& high,
                                    const uint4 (&x)[kTokenTiles][kVectors],
                                    float (&c)[kTokenTiles][4]) {
    uint32_t lows[8], highs[8];
    expand_vector<Half>(low, lows);
    expand_vector<Half>(high, highs);
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      uint32_t columns[8];
      expand_vector<Half>(x[n][0], columns);
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        multiply_tile<Half>(
            c[n], {lows[j], highs[j], lows[j + 1], highs[j + 1]}, {columns[j], columns[j + 1]});
      }
    }
  }
};

}  // namespace atom::ops::device
