// Elements on the device: conversions with float32 and 16-byte vectors of them.
#pragma once

#include <cstdint>
#include <cstring>

#include "tensor/element.h"
#include "tensor/gpu_api.h"

namespace atom::ops::device {

using Half = __half;
using BFloat16 = gpu_bfloat16;

// OCP e4m3: 1 sign, 4 exponent, 3 mantissa bits, largest 448, no infinity.
struct Float8 {
  uint8_t bits;
};
constexpr float kFloat8Max = 448.0f;

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(Half x) {
  return __half2float(x);
}
__device__ inline float to_float(BFloat16 x) {
  return __bfloat162float(x);
}
__device__ inline float to_float(Float8 x) {
  return gpu_float_of_float8(x.bits);
}

// Rounds to nearest even; FP8 saturates at its largest value.
template <typename T>
__device__ inline T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline Half from_float<Half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline BFloat16 from_float<BFloat16>(float x) {
  return __float2bfloat16(x);
}
template <>
__device__ inline Float8 from_float<Float8>(float x) {
  return {gpu_float8_of(x)};
}

// The codes of both, `low` in bits 0 to 7.
__device__ inline uint32_t float8_pair(float low, float high) {
  return gpu_float8_pair_of(low, high);
}

template <typename T>
__device__ inline float round_to(float x) {
  return to_float(from_float<T>(x));
}

// x / divisor, from one correctly rounded reciprocal of the divisor for many x. Correctly rounded
// where x has at most 11 significant bits (found by trying them all) and neither x nor the quotient
// is near the ends of float32's range.
__device__ inline float divide(float x, float divisor, float reciprocal) {
  const float quotient = x * reciprocal;
  return fmaf(fmaf(-divisor, quotient, x), reciprocal, quotient);
}

constexpr int kVectorSize = 16;  // bytes of the widest access

template <typename T>
struct alignas(kVectorSize) Vector {
  static constexpr int kLength = kVectorSize / sizeof(T);
  T element[kLength];
};

// `count` elements, as many bytes as fit one access.
template <typename T, int kCount>
struct alignas(kCount * sizeof(T)) Pack {
  T element[kCount];
};

// The bits of a vector, which keep four registers where elements of 16 bits would take eight.
__device__ inline uint4 load_bits(const void* source) {
  return *static_cast<const uint4*>(source);
}
__device__ inline void store_bits(void* target, const uint4& bits) {
  *static_cast<uint4*>(target) = bits;
}

template <typename T>
__device__ inline void to_floats(const uint4& bits, float (&x)[Vector<T>::kLength]) {
  Vector<T> vector;
  memcpy(&vector, &bits, sizeof bits);
#pragma unroll
  for (int i = 0; i < Vector<T>::kLength; ++i) x[i] = to_float(vector.element[i]);
}

template <typename T>
__device__ inline uint32_t bits_of_pair(float low, float high);
template <>
__device__ inline uint32_t bits_of_pair<Half>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}
template <>
__device__ inline uint32_t bits_of_pair<BFloat16>(float low, float high) {
  const gpu_bfloat162 pair = __float22bfloat162_rn(make_float2(low, high));
  uint32_t bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}

template <typename T>
__device__ inline uint4 bits_of(const float (&x)[Vector<T>::kLength]) {
  if constexpr (sizeof(T) == 4) {
    return {
        __float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3])};
  } else {
    return {bits_of_pair<T>(x[0], x[1]),
            bits_of_pair<T>(x[2], x[3]),
            bits_of_pair<T>(x[4], x[5]),
            bits_of_pair<T>(x[6], x[7])};
  }
}

template <typename T>
__device__ inline void round_all(float (&x)[Vector<T>::kLength]) {
  to_floats<T>(bits_of<T>(x), x);
}

// Two elements of 16 bits.
template <typename T>
struct PairOf;
template <>
struct PairOf<Half> {
  using Type = __half2;
};
template <>
struct PairOf<BFloat16> {
  using Type = gpu_bfloat162;
};

template <typename T>
__device__ inline typename PairOf<T>::Type as_pair(uint32_t bits) {
  typename PairOf<T>::Type pair;
  memcpy(&pair, &bits, sizeof bits);
  return pair;
}

// Of elements of 16 bits, each product rounded once.
template <typename T>
__device__ inline uint4 multiply_pairs(const uint4& a, const uint4& b) {
  const auto multiply = [](uint32_t x, uint32_t y) {
    const auto pair = __hmul2(as_pair<T>(x), as_pair<T>(y));
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
  };
  return {multiply(a.x, b.x), multiply(a.y, b.y), multiply(a.z, b.z), multiply(a.w, b.w)};
}

// The largest magnitude among the elements of vectors; NaN is none.
template <typename T>
class LargestMagnitude {
 public:
  __device__ void see(const uint4& bits) {
#pragma unroll
    for (const uint32_t word : {bits.x, bits.y, bits.z, bits.w}) {
      pair_ = gpu_larger_of(pair_, __habs2(as_pair<T>(word)));
    }
  }
  __device__ float value() const {
    return fmaxf(to_float(pair_.x), to_float(pair_.y));
  }

 private:
  typename PairOf<T>::Type pair_ = as_pair<T>(0);
};

template <>
class LargestMagnitude<float> {
 public:
  __device__ void see(const uint4& bits) {
#pragma unroll
    for (const uint32_t word : {bits.x, bits.y, bits.z, bits.w}) {
      value_ = fmaxf(value_, fabsf(__uint_as_float(word)));
    }
  }
  __device__ float value() const {
    return value_;
  }

 private:
  float value_ = 0;
};

template <typename T>
__device__ inline Vector<T> load_vector(const T* source) {
  return *reinterpret_cast<const Vector<T>*>(source);
}

template <typename T>
__device__ inline void store_vector(T* target, const Vector<T>& value) {
  *reinterpret_cast<Vector<T>*>(target) = value;
}

}  // namespace atom::ops::device
