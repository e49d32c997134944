// Elements on the device: conversions with float32 and 16-byte vectors of them.
#pragma once

#include <cstdint>
#include <cstring>

#include "ops/device/gpu_element.h"
#include "tensor/gpu_api.h"

#if defined(__HIP_PLATFORM_AMD__)
#include <hip/hip_fp8.h>
#else
#include <cuda_fp8.h>
#endif

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
#if defined(__HIP_PLATFORM_AMD__)
  return __half2float(__hip_cvt_fp8_to_halfraw(x.bits, __HIP_E4M3));
#else
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(x.bits, __NV_E4M3)));
#endif
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
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline Float8 from_float<Float8>(float x) {
#if defined(__HIP_PLATFORM_AMD__)
  return {__hip_cvt_float_to_fp8(x, __HIP_SATFINITE, __HIP_E4M3)};
#else
  return {__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3)};
#endif
}

// The codes of both, `low` in bits 0 to 7.
__device__ inline uint32_t float8_pair(float low, float high) {
#if defined(__HIP_PLATFORM_AMD__)
  return from_float<Float8>(low).bits | uint32_t{from_float<Float8>(high).bits} << 8;
#else
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
#endif
}

template <typename T>
__device__ inline float round_to(float x) {
  return to_float(from_float<T>(x));
}

// x / divisor, correctly rounded where neither x nor the quotient is near the ends of float32's
// range, from one reciprocal of the divisor for many x.
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
  const gpu_bfloat162 pair = __floats2bfloat162_rn(low, high);
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

template <typename T>
__device__ inline Vector<T> load_vector(const T* source) {
  return *reinterpret_cast<const Vector<T>*>(source);
}

template <typename T>
__device__ inline void store_vector(T* target, const Vector<T>& value) {
  *reinterpret_cast<Vector<T>*>(target) = value;
}

}  // namespace atom::ops::device
