// The 4-bit floating point format of quantized weights and activations, OCP FP4 E2M1 (sign, 2 bits
// of exponent with bias 1, 1 of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4, 6), and the format of the scales
// that 32 of them share, E8M0: a power of two, 2^(byte - 127).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace atom {

constexpr float kFloat4E2M1Max = 6.0f;

// Of the lower 4 bits.
inline float float4_to_float(uint8_t code) {
  constexpr float kMagnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const float magnitude = kMagnitudes[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

// To nearest even; what is beyond the largest value becomes that. There is no NaN: it becomes 0.
inline uint8_t float4_from_float(float value) {
  const float magnitude = std::fabs(value);
  const int code = (magnitude > 0.25f) + (magnitude >= 0.75f) + (magnitude > 1.25f) +
                   (magnitude >= 1.75f) + (magnitude > 2.5f) + (magnitude >= 3.5f) +
                   (magnitude > 5.0f);
  return static_cast<uint8_t>(code | (std::signbit(value) ? 8 : 0));
}

// 0xff is NaN.
inline float e8m0_to_float(uint8_t exponent) {
  if (exponent == 0xff) return std::bit_cast<float>(0x7fc00000u);
  if (exponent == 0) return std::bit_cast<float>(0x00400000u);
  return std::bit_cast<float>(static_cast<uint32_t>(exponent) << 23);
}

// How the scale of values whose largest magnitude is `largest` is chosen.
enum class E8M0Rounding {
  kUp,    // the least power of two by which the largest value fits: nothing saturates
  kEven,  // from the largest value rounded to the mantissa of FP4: what tools store
};

inline uint8_t e8m0_scale_for_float4(float largest, E8M0Rounding rounding) {
  uint32_t bits = std::bit_cast<uint32_t>(largest) & 0x7fffffffu;
  if (bits >= 0x7f800000u) return 0xff;
  int32_t exponent = 0;
  if (rounding == E8M0Rounding::kUp) {
    const float scale = largest / kFloat4E2M1Max;
    bits = std::bit_cast<uint32_t>(scale) & 0x7fffffffu;
    exponent = static_cast<int32_t>(bits >> 23) + ((bits & 0x7fffffu) != 0 ? 1 : 0);
  } else {
    exponent = static_cast<int32_t>((bits + 0x200000u) >> 23) - 2;
  }
  return static_cast<uint8_t>(exponent < 0 ? 0 : exponent > 254 ? 254 : exponent);
}

}  // namespace atom
