// SiLU of a vector, for files compiled for one instruction set. `Simd` has internal linkage, and so
// has every instance.
#pragma once

namespace atom::ops {

// x / (1 + e^-x)
template <typename Simd>
typename Simd::Float silu(typename Simd::Float x) {
  constexpr float kMinusLog2E = -1.44269504f;
  const auto exponential = Simd::exp2(Simd::mul(x, Simd::set(kMinusLog2E)));
  return Simd::div(x, Simd::add(Simd::set(1.0f), exponential));
}

}  // namespace atom::ops
