// Inside silu_and_mul: the kernel over a vector type, which the file of each instruction set
// includes. `Simd` has internal linkage, and so has every instance.
#pragma once

#include "ops/silu_and_mul/silu_and_mul_kernels.h"
#include "ops/simd/silu.h"

namespace atom::ops {

template <typename Simd>
typename Simd::Float silu_times(typename Simd::Float gate, typename Simd::Float up) {
  return Simd::mul(silu<Simd>(gate), up);
}

template <typename Simd, typename T>
void silu_and_mul_of(const SiluAndMulArgs& args, int64_t begin, int64_t end) {
  const int64_t whole = args.size / Simd::kWidth * Simd::kWidth, rest = args.size - whole;
  for (int64_t row = begin; row < end; ++row) {
    const T* gate = static_cast<const T*>(args.gate_up) + row * args.gate_up_stride;
    const T* up = gate + args.size;
    T* out = static_cast<T*>(args.out) + row * args.out_stride;
    for (int64_t i = 0; i < whole; i += Simd::kWidth) {
      Simd::store(out + i, silu_times<Simd>(Simd::load(gate + i), Simd::load(up + i)));
    }
    if (rest > 0) {
      const auto product =
          silu_times<Simd>(Simd::load(gate + whole, rest), Simd::load(up + whole, rest));
      Simd::store(out + whole, rest, product);
    }
  }
}

template <typename Simd>
void silu_and_mul_rows(const SiluAndMulArgs& args, int64_t begin, int64_t end) {
  switch (args.element) {
    case Element::kFloat32:
      return silu_and_mul_of<Simd, float>(args, begin, end);
    case Element::kFloat16:
      return silu_and_mul_of<Simd, Float16Bits>(args, begin, end);
    case Element::kBFloat16:
      return silu_and_mul_of<Simd, BFloat16Bits>(args, begin, end);
    case Element::kFloat8E4M3:
      __builtin_trap();  // no operator takes it as `element`
  }
}

}  // namespace atom::ops
