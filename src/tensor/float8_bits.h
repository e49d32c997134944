// OCP FP8 E4M3 (tensor/float8.h) by plain arithmetic: on the CPU, and on devices that have no
// instruction for it.
#pragma once

#include <bit>
#include <cstdint>

namespace atom {

constexpr float float_of_float8_bits(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  const uint32_t magnitude = code & 0x7fu;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude < 8) {
    return std::bit_cast<float>(sign |
                                std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-9f));
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + (120u << 23)));
}

// To nearest even; what is beyond the largest value, infinities included, becomes that.
constexpr uint8_t float8_bits_of(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7f);
  if (magnitude >= std::bit_cast<uint32_t>(448.0f)) return static_cast<uint8_t>(sign | 0x7e);
  if (magnitude < std::bit_cast<uint32_t>(0x1p-6f)) {
    // A float of 2^14 counts in 2^-9, the step of subnormals: the adder rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) & 0xffu));
  }
  const uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  return static_cast<uint8_t>(sign | ((rounded >> 20) - (120u << 3)));
}

}  // namespace atom
