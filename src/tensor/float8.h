// The 8-bit floating point format of quantised weights, activations and KV caches: OCP FP8 E4M3
// (float8_e4m3fn), sign, 4 bits of exponent with bias 7, 3 of mantissa. The largest value is 448;
// there is no infinity, and 0x7f and 0xff are NaN.
#pragma once

#include <cstdint>

#include "tensor/float8_bits.h"
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
  return float_of_float8_bits(value.bits);
}

// To nearest even; what is beyond the largest value, infinities included, becomes that.
template <>
inline Float8E4M3 from_float<Float8E4M3>(float value) {
  return Float8E4M3{float8_bits_of(value)};
}

}  // namespace atom
