// Inside add: the kernel over a vector type, which the file of each instruction set includes.
// `Simd` has internal linkage, and so has every instance.
#pragma once

#include "ops/add/add_kernels.h"

namespace atom::ops {

template <typename Simd, typename T>
void add_elements_of(const AddArgs& args, int64_t begin, int64_t end) {
  constexpr int kWidth = Simd::kWidth;
  const T* x = static_cast<const T*>(args.x);
  T* out = static_cast<T*>(args.out);
  int64_t i = begin;
  for (; i + kWidth <= end; i += kWidth) {
    Simd::store(out + i, Simd::add(Simd::load(out + i), Simd::load(x + i)));
  }
  const int64_t rest = end - i;
  if (rest == 0) return;
  Simd::store(out + i, rest, Simd::add(Simd::load(out + i, rest), Simd::load(x + i, rest)));
}

template <typename Simd>
void add_elements(const AddArgs& args, int64_t begin, int64_t end) {
  switch (args.element) {
    case Element::kFloat32:
      return add_elements_of<Simd, float>(args, begin, end);
    case Element::kFloat16:
      return add_elements_of<Simd, Float16Bits>(args, begin, end);
    case Element::kBFloat16:
      return add_elements_of<Simd, BFloat16Bits>(args, begin, end);
    case Element::kFloat8E4M3:
      __builtin_trap();  // no operator takes it as `element`
  }
}

}  // namespace atom::ops
