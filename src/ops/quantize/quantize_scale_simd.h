// Inside quantize: a row's largest magnitude over a vector type, and the scale that it asks for.
#pragma once

#include "ops/quantize/quantize_kernels.h"

namespace atom::ops {

// The largest magnitude, NaN left out; *finite as float: 0 unless a value is infinite or NaN.
template <typename Simd, typename T>
float largest_of(const T* x, int64_t size, float* not_finite) {
  using Float = typename Simd::Float;
  constexpr int kWidth = Simd::kWidth;
  // The operand order drops NaN.
  Float largest[2] = {Simd::zero(), Simd::zero()};
  Float differences = Simd::zero();
  int64_t k = 0;
  const auto see = [&](Float value, Float& most) {
    most = Simd::max(Simd::absolute(value), most);
    if (not_finite != nullptr) differences = Simd::add(differences, Simd::sub(value, value));
  };
  for (; k + 2 * kWidth <= size; k += 2 * kWidth) {
    see(Simd::load(x + k), largest[0]);
    see(Simd::load(x + k + kWidth), largest[1]);
  }
  for (; k < size; k += kWidth) {
    see(size - k >= kWidth ? Simd::load(x + k) : Simd::load(x + k, size - k), largest[0]);
  }
  if (not_finite != nullptr) *not_finite = Simd::sum(differences);
  return Simd::largest(Simd::max(largest[0], largest[1]));
}

inline float scale_of_largest(float largest, float limit) {
  const float scale = largest / limit;
  return scale > 0.0f ? scale : 1.0f;
}

}  // namespace atom::ops
