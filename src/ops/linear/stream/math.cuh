// Inside the streaming linear: how 64 bytes of 16 weight rows meet up to 8 rows of x in the tensor
// cores, per combination of element types.
//
// A product of a 16 x k tile of W and a k x 8 tile of x^T does not care in which order k is
// visited, as long as both sides agree. So lane (g, t) = (lane / 4, lane % 4) reads the 16 adjacent
// bytes t of the 64 from its rows g and g + 8, and the matching elements of row g of x, and hands
// them to the tensor cores four elements at a time.
#pragma once

#include <cstdint>
#include <type_traits>

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

// The elements of kVectors vectors of T as pairs of what the tensor cores multiply.
template <typename T, typename Multiplied, int kVectors>
struct Pairs {
  static constexpr int kCount = kVectors * kVectorSize / (2 * sizeof(T));
  uint32_t pair[kCount];

  __device__ explicit Pairs(const uint4 (&vectors)[kVectors]) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const uint32_t words[4] = {vectors[v].x, vectors[v].y, vectors[v].z, vectors[v].w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (sizeof(T) == sizeof(Multiplied)) {
          pair[4 * v + i] = words[i];
        } else {
          pair[8 * v + 2 * i] = expand_pair<Multiplied>(words[i]);
          pair[8 * v + 2 * i + 1] = expand_pair<Multiplied>(words[i] >> 16);
        }
      }
    }
  }
};

// A weight of W with x of X. Either may be FP8: every FP8 value is a float16 and a bfloat16, and
// every product of two is exact in float32.
template <typename W, typename X>
struct StreamMath {
  using Multiplied = std::conditional_t<sizeof(X) == 1, Half, X>;
  static constexpr int kWeightSize = sizeof(W);  // bytes
  static constexpr int kXSize = sizeof(X);
  // 16-byte vectors of x that match 16 bytes of a weight row.
  static constexpr int kVectors = kXSize / kWeightSize;

  template <int kTokenTiles>
  static __device__ void accumulate(const uint4& low,
                                    const uint4& high,
                                    const uint4 (&x)[kTokenTiles][kVectors],
                                    float (&c)[kTokenTiles][4]) {
    const Pairs<W, Multiplied, 1> lows({low}), highs({high});
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      const Pairs<X, Multiplied, kVectors> columns(x[n]);
#pragma unroll
      for (int i = 0; i < columns.kCount; i += 2) {
        multiply_tile<Multiplied>(
            c[n],
            {lows.pair[i], highs.pair[i], lows.pair[i + 1], highs.pair[i + 1]},
            {columns.pair[i], columns.pair[i + 1]});
      }
    }
  }
};

}  // namespace atom::ops::device
