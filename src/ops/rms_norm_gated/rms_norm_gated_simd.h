// Inside rms_norm_gated: the kernel over a vector type, which the file of each instruction set
// includes. `Simd` has internal linkage, and so has every instance.
#pragma once

#include <math.h>

#include "ops/rms_norm_gated/rms_norm_gated_kernels.h"
#include "ops/simd/silu.h"

namespace atom::ops {

template <typename Simd, typename T>
void rms_norm_gated_row(const RmsNormGatedArgs& args, const T* x, const T* gate, T* out) {
  using Float = typename Simd::Float;
  constexpr int kWidth = Simd::kWidth;
  const int64_t whole = args.size / kWidth * kWidth, rest = args.size - whole;
  Float squares = Simd::zero();
  for (int64_t i = 0; i < whole; i += kWidth) {
    const Float value = Simd::load(x + i);
    squares = Simd::fma(value, value, squares);
  }
  if (rest > 0) {
    const Float value = Simd::load(x + whole, rest);
    squares = Simd::fma(value, value, squares);
  }
  const float mean = Simd::sum(squares) / static_cast<float>(args.size);
  const Float scale = Simd::set(1.0f / sqrtf(mean + args.eps));
  const auto gated = [&](Float value, Float weight, Float z) {
    return Simd::mul(Simd::mul(Simd::mul(value, scale), weight), silu<Simd>(z));
  };
  for (int64_t i = 0; i < whole; i += kWidth) {
    Simd::store(out + i,
                gated(Simd::load(x + i), Simd::load(args.weight + i), Simd::load(gate + i)));
  }
  if (rest > 0) {
    Simd::store(out + whole,
                rest,
                gated(Simd::load(x + whole, rest),
                      Simd::load(args.weight + whole, rest),
                      Simd::load(gate + whole, rest)));
  }
}

template <typename Simd, typename T>
void rms_norm_gated_rows_of(const RmsNormGatedArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t token = row / args.num_heads, head = row % args.num_heads;
    const int64_t first = head * args.size;
    rms_norm_gated_row<Simd>(args,
                             static_cast<const T*>(args.x) + token * args.x_stride + first,
                             static_cast<const T*>(args.gate) + token * args.gate_stride + first,
                             static_cast<T*>(args.out) + token * args.out_stride + first);
  }
}

template <typename Simd>
void rms_norm_gated_rows(const RmsNormGatedArgs& args, int64_t begin, int64_t end) {
  switch (args.element) {
    case Element::kFloat32:
      return rms_norm_gated_rows_of<Simd, float>(args, begin, end);
    case Element::kFloat16:
      return rms_norm_gated_rows_of<Simd, Float16Bits>(args, begin, end);
    case Element::kBFloat16:
      return rms_norm_gated_rows_of<Simd, BFloat16Bits>(args, begin, end);
    case Element::kFloat8E4M3:
      __builtin_trap();  // no operator takes it as `element`
  }
}

}  // namespace atom::ops
