// Inside fused_moe by terms in FP8: numbers as two terms, and codes of E2M1 as E4M3.
#pragma once

#include <cstdint>

#include "ops/fused_moe/expert_image_format.h"
#include "tensor/gpu_api.h"

namespace atom::ops::device::terms {

// Of an expanded code, which is 2^-6 of its value.
constexpr float kUnit = 0x1p6f;

// Two numbers, each the sum of a high and a low term; the first in the lower byte.
struct Terms {
  uint32_t high, low;
};

__device__ inline uint32_t codes_of(float first, float second) {
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
  return codes;
}

__device__ inline float2 values_of(uint32_t codes) {
  __half2 values;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;"
      : "=r"(reinterpret_cast<uint32_t&>(values))
      : "h"(static_cast<uint16_t>(codes)));
  return __half22float2(values);
}

// Of magnitudes below 256. Numbers of 8 significant bits lose none down to 1/4, and less than 2^-10
// below that.
__device__ inline Terms terms_of(float first, float second) {
  const uint32_t high = codes_of(first, second);
  const float2 values = values_of(high);
  return {high, codes_of(first - values.x, second - values.y)};
}

// Powers of two, by which numbers become terms and back.
struct TermScale {
  float to, from;
};

// So that the largest magnitude, as the bits of a float, becomes 128 to 256. What is no number
// makes all terms so.
__device__ inline TermScale scale_of_largest_bits(uint32_t bits) {
  const uint32_t exponent = max(bits >> 23, 8u);
  if (exponent == 255) return {__uint_as_float(0x7fffffff), __uint_as_float(0x7fffffff)};
  return {__uint_as_float((261 - exponent) << 23), __uint_as_float((exponent - 7) << 23)};
}

// Of eight codes those of even columns, and those of odd ones.
__device__ inline void expand(uint32_t word, uint32_t& even, uint32_t& odd) {
  constexpr uint32_t kSigns = 0x80808080, kRest = 0x1c1c1c1c;
  even = (word << 4 & kSigns) | (word << 2 & kRest);
  odd = (word & kSigns) | (word >> 2 & kRest);
}

// The same of an image's codes.
__device__ inline void expand_image(uint32_t word, uint32_t& even, uint32_t& odd) {
  even = image_codes_even(word);
  odd = image_codes_odd(word);
}

// Where in its 32 columns' terms a column is: those of even ones come first.
__host__ __device__ constexpr int place_of(int column) {
  return column / 32 * 32 + column % 2 * 16 + column % 32 / 2;
}

// The power of two of an exponent in E8M0.
__device__ inline float power_of(uint32_t exponent) {
  return __uint_as_float(exponent << 23);
}

}  // namespace atom::ops::device::terms
