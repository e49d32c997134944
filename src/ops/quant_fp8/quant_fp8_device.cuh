// Inside quant_fp8: the code of one value on the device, bit for bit what the CPU computes.
#pragma once

#include <cstring>

#include "ops/device/elements.cuh"

namespace atom::ops {

// max / 448, or 1 where that is 0.
__device__ inline float scale_of_largest(float largest) {
  const float scale = largest / device::kFloat8Max;
  return scale > 0.0f ? scale : 1.0f;
}

// Codes of x / scale, rounded to float32 first; the sign is x's even of zero and NaN.
class Fp8Quantiser {
 public:
  // With `is_bounded` no finite value is larger than 512 * scale.
  __device__ Fp8Quantiser(float scale, bool is_bounded)
      : scale_(scale),
        reciprocal_(1.0f / scale),
        limit_(512.0f * scale),
        is_bounded_(is_bounded),
        is_ordinary_(scale >= 0x1p-100f && scale <= 0x1p100f) {}

  __device__ device::Float8 operator()(float x) const {
    return code_of(is_ordinary_ ? divide(is_bounded_ ? x : limited(x)) : x / scale_, x);
  }

  template <int kLength>
  __device__ device::Pack<device::Float8, kLength> operator()(const float (&x)[kLength]) const {
    static_assert(kLength % 4 == 0);
    device::Pack<device::Float8, kLength> codes;
    if (!is_ordinary_) {
      for (int i = 0; i < kLength; ++i) codes.element[i] = code_of(x[i] / scale_, x[i]);
      return codes;
    }
    float dividend[kLength];
#pragma unroll
    for (int i = 0; i < kLength; ++i) dividend[i] = x[i];
    if (!is_bounded_) {
#pragma unroll
      for (int i = 0; i < kLength; ++i) dividend[i] = limited(x[i]);
    }
    uint32_t words[kLength / 4];
#pragma unroll
    for (int i = 0; i < kLength; i += 4) {
      const uint32_t signs =
          __byte_perm(high_bytes(x[i], x[i + 1]), high_bytes(x[i + 2], x[i + 3]), 0x5410);
      words[i / 4] = device::float8_pair(divide(dividend[i]), divide(dividend[i + 1])) |
                     device::float8_pair(divide(dividend[i + 2]), divide(dividend[i + 3])) << 16 |
                     (signs & 0x80808080u);
    }
    memcpy(&codes, words, sizeof codes);
    return codes;
  }

 private:
  __device__ static device::Float8 code_of(float quotient, float x) {
    const uint8_t sign = __float_as_uint(x) >> 24 & 0x80u;
    return {static_cast<uint8_t>(device::from_float<device::Float8>(quotient).bits | sign)};
  }

  // The bytes with the signs, in bits 0 to 15.
  __device__ static uint32_t high_bytes(float low, float high) {
    return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x0073);
  }

  // Beyond the limit codes do not differ; NaN stays.
  __device__ float limited(float x) const {
    return fabsf(x) > limit_ ? copysignf(limit_, x) : x;
  }

  // Correctly rounded: two steps of Newton's method from a correctly rounded reciprocal, none of
  // which overflows.
  __device__ float divide(float x) const {
    const float first = x * reciprocal_;
    const float second = fmaf(fmaf(-scale_, first, x), reciprocal_, first);
    return fmaf(fmaf(-scale_, second, x), reciprocal_, second);
  }

  float scale_;
  float reciprocal_;
  float limit_;
  bool is_bounded_;
  bool is_ordinary_;
};

}  // namespace atom::ops
