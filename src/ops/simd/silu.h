// Sigmoid and SiLU of a vector, for files compiled for one instruction set. `Simd` has internal
// linkage, and so has every instance.
#pragma once

namespace atom::ops {

// 1 + e^-x
template <typename Simd>
typename Simd::Float one_plus_exp_minus(typename Simd::Float x) {
  constexpr float kMinusLog2E = -1.44269504f;
  return Simd::add(Simd::set(1.0f), Simd::exp2(Simd::mul(x, Simd::set(kMinusLog2E))));
}

// 1 / (1 + e^-x)
template <typename Simd>
typename Simd::Float sigmoid(typename Simd::Float x) {
  return Simd::div(Simd::set(1.0f), one_plus_exp_minus<Simd>(x));
}

// x / (1 + e^-x)
template <typename Simd>
typename Simd::Float silu(typename Simd::Float x) {
  return Simd::div(x, one_plus_exp_minus<Simd>(x));
}

}  // namespace atom::ops
