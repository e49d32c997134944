// Inside quantize: the kernel over a vector type, which the file of each instruction set includes.
// `Simd` has internal linkage, and so has every instance. Bit for bit what the reference computes.
#pragma once

#include "ops/quantize/quantize_kernels.h"

namespace atom::ops {

template <typename Simd, typename T>
float scale_of_row(const T* x, int64_t size) {
  using Float = typename Simd::Float;
  constexpr int kWidth = Simd::kWidth;
  // The operand order drops NaN.
  Float largest[2] = {Simd::zero(), Simd::zero()};
  int64_t k = 0;
  for (; k + 2 * kWidth <= size; k += 2 * kWidth) {
    largest[0] = Simd::max(Simd::absolute(Simd::load(x + k)), largest[0]);
    largest[1] = Simd::max(Simd::absolute(Simd::load(x + k + kWidth)), largest[1]);
  }
  for (; k < size; k += kWidth) {
    const Float value = size - k >= kWidth ? Simd::load(x + k) : Simd::load(x + k, size - k);
    largest[0] = Simd::max(Simd::absolute(value), largest[0]);
  }
  const float scale = Simd::largest(Simd::max(largest[0], largest[1])) / 448.0f;
  return scale > 0.0f ? scale : 1.0f;
}

template <typename Simd, typename T>
void quantize_row(const T* x, int64_t size, float scale, Float8Bits* values) {
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
void quantize_rows(const QuantizeArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    const float scale =
        args.scales != nullptr ? scale_of_row<Simd>(x, args.size) : *args.static_scale;
    if (args.scales != nullptr) args.scales[row] = scale;
    quantize_row<Simd>(
        x, args.size, scale, reinterpret_cast<Float8Bits*>(args.values + row * args.values_stride));
  }
}

template <typename Simd>
void quantize_rows(const QuantizeArgs& args, int64_t begin, int64_t end) {
  switch (args.element) {
    case Element::kFloat32:
      return quantize_rows<Simd, float>(args, begin, end);
    case Element::kFloat16:
      return quantize_rows<Simd, Float16Bits>(args, begin, end);
    case Element::kBFloat16:
      return quantize_rows<Simd, BFloat16Bits>(args, begin, end);
    case Element::kFloat8E4M3:
      __builtin_trap();  // no operator takes it as `element`
  }
}

}  // namespace atom::ops
