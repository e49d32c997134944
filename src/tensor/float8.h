// The 8-bit floating point format of quantised weights, activations and KV caches: OCP FP8 E4M3
// (float8_e4m3fn), sign, 4 bits of exponent with bias 7, 3 of mantissa. The largest value is 448;
// there is no infinity, and 0x7f and 0xff are NaN.
#pragma once

#include <bit>
#include <cstdint>

#include "tensor/tensor.h"

namespace atom {

struct Float8E4M3 {
  uint8_t bits;
};

constexpr float kFloat8E4M3Max = 448.0f;

template <>
struct DTypeOf<Float8E4M3> {
  static constexpr DType value = DType::kFloat8E4M3;
};

inline float to_float(Float8E4M3 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x80u) << 24;
  const uint32_t magnitude = value.bits & 0x7fu;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude < 8) {
    return std::bit_cast<float>(sign |
                                std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-9f));
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + (120u << 23)));
}

// To nearest even; what is beyond the largest value, infinities included, becomes that.
template <>
inline Float8E4M3 from_float<Float8E4M3>(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const auto with_sign = [sign](uint32_t code) {
    return Float8E4M3{static_cast<uint8_t>(sign | code)};
  };
  if (magnitude > 0x7f800000u) return with_sign(0x7f);
  if (magnitude >= std::bit_cast<uint32_t>(kFloat8E4M3Max)) return with_sign(0x7e);
  if (magnitude < std::bit_cast<uint32_t>(0x1p-6f)) {
    // A float of 2^14 counts in 2^-9, the step of subnormals: the adder rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    return with_sign(std::bit_cast<uint32_t>(shifted) & 0xffu);
  }
  const uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  return with_sign((rounded >> 20) - (120u << 3));
}

}  // namespace atom
