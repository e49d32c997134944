// Inside rms_norm: the kernel over a vector type, which the file of each instruction set includes.
// `Simd` has internal linkage, and so has every instance.
#pragma once

#include <math.h>

#include "ops/rms_norm/rms_norm_kernels.h"

namespace atom::ops {

template <typename Simd, typename T, typename W>
void rms_norm_row(const RmsNormArgs& args, const T* x, T* residual, const W* weight, T* out) {
  using Float = typename Simd::Float;
  constexpr int kWidth = Simd::kWidth;
  const int64_t size = args.size;
  const int64_t whole = size / kWidth * kWidth, rest = size - whole;
  // Four sums: one would wait for its own addition.
  Float sums[4] = {Simd::zero(), Simd::zero(), Simd::zero(), Simd::zero()};
  const auto square = [&](int64_t i, Float& sum) {
    Float value = Simd::load(x + i);
    if (residual != nullptr) {
      value = Simd::template round_to<T>(Simd::add(value, Simd::load(residual + i)));
      Simd::store(residual + i, value);
    }
    sum = Simd::fma(value, value, sum);
  };
  int64_t i = 0;
  for (; i + 4 * kWidth <= whole; i += 4 * kWidth) {
    for (int k = 0; k < 4; ++k) square(i + k * kWidth, sums[k]);
  }
  for (; i < whole; i += kWidth) square(i, sums[0]);
  if (rest > 0) {
    Float value = Simd::load(x + i, rest);
    if (residual != nullptr) {
      value = Simd::template round_to<T>(Simd::add(value, Simd::load(residual + i, rest)));
      Simd::store(residual + i, rest, value);
    }
    sums[1] = Simd::fma(value, value, sums[1]);
  }
  const float total =
      Simd::sum(Simd::add(Simd::add(sums[0], sums[1]), Simd::add(sums[2], sums[3])));
  const Float scale = Simd::set(1.0f / sqrtf(total / static_cast<float>(size) + args.eps));

  const T* source = residual != nullptr ? residual : x;
  const auto normalized = [&](Float value, Float w) {
    Float y = Simd::mul(value, scale);
    if constexpr (sizeof(W) == sizeof(T)) y = Simd::template round_to<T>(y);
    return Simd::mul(w, y);
  };
  for (i = 0; i < whole; i += kWidth) {
    Simd::store(out + i, normalized(Simd::load(source + i), Simd::load(weight + i)));
  }
  if (rest > 0) {
    const Float y = normalized(Simd::load(source + i, rest), Simd::load(weight + i, rest));
    Simd::store(out + i, rest, y);
  }
}

template <typename Simd, typename T, typename W>
void rms_norm_rows(const RmsNormArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t token = row / args.num_heads, head = row % args.num_heads;
    T* residual = static_cast<T*>(args.residual);
    rms_norm_row<Simd>(
        args,
        static_cast<const T*>(args.x) + token * args.x_strides[0] + head * args.x_strides[1],
        residual == nullptr ? nullptr : residual + token * args.residual_stride,
        static_cast<const W*>(args.weight),
        static_cast<T*>(args.out) + token * args.out_strides[0] + head * args.out_strides[1]);
  }
}

template <typename Simd, typename T>
void rms_norm_rows(const RmsNormArgs& args, int64_t begin, int64_t end) {
  if (args.rounds_once) {
    rms_norm_rows<Simd, T, float>(args, begin, end);
  } else {
    rms_norm_rows<Simd, T, T>(args, begin, end);
  }
}

template <typename Simd>
void rms_norm_rows(const RmsNormArgs& args, int64_t begin, int64_t end) {
  switch (args.element) {
    case Element::kFloat32:
      return rms_norm_rows<Simd, float, float>(args, begin, end);
    case Element::kFloat16:
      return rms_norm_rows<Simd, Float16Bits>(args, begin, end);
    case Element::kBFloat16:
      return rms_norm_rows<Simd, BFloat16Bits>(args, begin, end);
    case Element::kFloat8E4M3:
      __builtin_trap();  // no operator takes it as `element`
  }
}

}  // namespace atom::ops
