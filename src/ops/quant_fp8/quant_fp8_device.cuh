// Inside quant_fp8: the code of one value on the device, bit for bit what the CPU computes.
#pragma once

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
  __device__ explicit Fp8Quantiser(float scale)
      : scale_(scale),
        reciprocal_(1.0f / scale),
        limit_(512.0f * scale),
        is_ordinary_(scale >= 0x1p-100f && scale <= 0x1p100f) {}

  __device__ device::Float8 operator()(float x) const {
    return code_of(is_ordinary_ ? divide(fabsf(x)) : fabsf(x) / scale_, x);
  }

  // Of several values, with the choice between the two divisions made once.
  template <typename T, int kLength>
  __device__ void quantise(const T (&x)[kLength], device::Float8 (&codes)[kLength]) const {
    if (is_ordinary_) {
#pragma unroll
      for (int i = 0; i < kLength; ++i) {
        const float value = device::to_float(x[i]);
        codes[i] = code_of(divide(fabsf(value)), value);
      }
    } else {
      for (int i = 0; i < kLength; ++i) {
        const float value = device::to_float(x[i]);
        codes[i] = code_of(fabsf(value) / scale_, value);
      }
    }
  }

 private:
  __device__ static device::Float8 code_of(float magnitude, float signed_value) {
    const uint8_t sign = __float_as_uint(signed_value) >> 24 & 0x80u;
    return {static_cast<uint8_t>(device::from_float<device::Float8>(magnitude).bits | sign)};
  }

  // Correctly rounded up to 512, beyond which codes do not differ: two steps of Newton's method
  // from a correctly rounded reciprocal, none of which overflows.
  __device__ float divide(float magnitude) const {
    const float dividend = magnitude > limit_ ? limit_ : magnitude;  // NaN stays
    const float first = dividend * reciprocal_;
    const float second = fmaf(fmaf(-scale_, first, dividend), reciprocal_, first);
    return fmaf(fmaf(-scale_, second, dividend), reciprocal_, second);
  }

  float scale_;
  float reciprocal_;
  float limit_;
  bool is_ordinary_;
};

}  // namespace atom::ops
