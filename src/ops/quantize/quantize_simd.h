// Inside quantize: the kernel over a vector type, which the file of each instruction set includes.
// `Simd` has internal linkage, and so has every instance; beside the common interface it has
// store_int8(p, n, value), which rounds n values and limits them. Bit for bit what the reference
// computes.
#pragma once

#include <string.h>

#include "ops/quantize/quantize_kernels.h"
#include "ops/quantize/quantize_scale_simd.h"

namespace atom::ops {

template <typename Simd, typename T>
void quantize_float8(const T* x, int64_t size, float scale, Float8Bits* values) {
  constexpr int kWidth = Simd::kWidth;
  const typename Simd::Float divisor = Simd::set(scale);
  int64_t k = 0;
  for (; k + kWidth <= size; k += kWidth) {
    Simd::store(values + k, Simd::div(Simd::load(x + k), divisor));
  }
  if (k < size) {
    Simd::store(values + k, size - k, Simd::div(Simd::load(x + k, size - k), divisor));
  }
}

template <typename Simd, typename T>
void quantize_int8(const T* x, int64_t size, float scale, uint8_t* values) {
  constexpr int kWidth = Simd::kWidth;
  const typename Simd::Float divisor = Simd::set(scale);
  for (int64_t k = 0; k < size; k += kWidth) {
    const int64_t count = size - k < kWidth ? size - k : kWidth;
    const auto value = count < kWidth ? Simd::load(x + k, count) : Simd::load(x + k);
    Simd::store_int8(values + k, count, Simd::div(value, divisor));
  }
}

inline uint32_t bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// As e8m0_scale_for_float4 (tensor/float4.h).
inline uint8_t float4_exponent(float largest, bool rounds_even) {
  int32_t exponent;
  if (rounds_even) {
    exponent = static_cast<int32_t>((bits_of_float(largest) + 0x200000u) >> 23) - 2;
  } else {
    const uint32_t bits = bits_of_float(largest / 6.0f);
    exponent = static_cast<int32_t>(bits >> 23) + ((bits & 0x7fffffu) != 0 ? 1 : 0);
  }
  return static_cast<uint8_t>(exponent < 0 ? 0 : exponent > 254 ? 254 : exponent);
}

// 2^(127 - exponent).
inline float float4_factor(uint8_t exponent) {
  return exponent == 254 ? float_of_bits(0x00400000u)
                         : float_of_bits(static_cast<uint32_t>(254 - exponent) << 23);
}

// 32 values.
template <typename Simd, typename T>
void quantize_float4(const T* x, bool rounds_even, uint8_t* exponent, uint8_t* values) {
  constexpr int kSize = 32;
  float not_finite = 0;
  const float largest = largest_of<Simd>(x, kSize, &not_finite);
  const bool finite = not_finite == 0.0f;
  *exponent = finite ? float4_exponent(largest, rounds_even) : 0xff;
  const typename Simd::Float factor = Simd::set(finite ? float4_factor(*exponent) : 0.0f);
  float scaled[kSize];
  for (int k = 0; k < kSize; k += Simd::kWidth) {
    Simd::store(scaled + k, Simd::mul(Simd::load(x + k), factor));
  }
  int32_t codes[kSize];
  for (int k = 0; k < kSize; ++k) {
    const float m = __builtin_fabsf(scaled[k]);
    codes[k] = (m > 0.25f) + (m >= 0.75f) + (m > 1.25f) + (m >= 1.75f) + (m > 2.5f) + (m >= 3.5f) +
               (m > 5.0f) + static_cast<int32_t>(bits_of_float(scaled[k]) >> 31) * 8;
  }
  for (int k = 0; k < kSize; k += 2) {
    values[k / 2] = static_cast<uint8_t>(codes[k] | codes[k + 1] << 4);
  }
}

template <typename Simd, typename T>
void quantize_group(const QuantizeArgs& args, const T* x, int64_t size, int64_t group) {
  const int64_t begin = group * args.group_size;
  x += begin;
  if (args.dtype == QuantDType::kFloat4E2M1) {
    uint8_t* values = args.values + begin / 2;
    return quantize_float4<Simd>(x, args.rounds_exponents, args.exponents + group, values);
  }
  const bool is_float8 = args.dtype == QuantDType::kFloat8E4M3;
  float scale = 0;
  if (args.scales == nullptr) {
    scale = *args.static_scale;
  } else {
    float not_finite = 0;
    const float largest = largest_of<Simd>(x, size, is_float8 ? nullptr : &not_finite);
    scale = scale_of_largest(largest, is_float8 ? 448.0f : 127.0f);
    if (not_finite != 0.0f) scale = __builtin_nanf("");
    args.scales[group] = scale;
  }
  uint8_t* values = args.values + begin;
  if (is_float8) {
    quantize_float8<Simd>(x, size, scale, reinterpret_cast<Float8Bits*>(values));
  } else {
    quantize_int8<Simd>(x, size, scale, values);
  }
}

template <typename Simd, typename T>
void quantize_rows_of(const QuantizeArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const QuantizeArgs one = row_of(args, row);
    const int64_t num_groups = args.num_groups();
    for (int64_t g = 0; g < num_groups; ++g) {
      const int64_t left = args.size - g * args.group_size;
      const int64_t size = left < args.group_size ? left : args.group_size;
      quantize_group<Simd>(one, static_cast<const T*>(one.x), size, g);
    }
  }
}

template <typename Simd>
void quantize_rows(const QuantizeArgs& args, int64_t begin, int64_t end) {
  switch (args.element) {
    case Element::kFloat32:
      return quantize_rows_of<Simd, float>(args, begin, end);
    case Element::kFloat16:
      return quantize_rows_of<Simd, Float16Bits>(args, begin, end);
    case Element::kBFloat16:
      return quantize_rows_of<Simd, BFloat16Bits>(args, begin, end);
    case Element::kFloat8E4M3:
      __builtin_trap();  // no operator takes it as `element`
  }
}

}  // namespace atom::ops
