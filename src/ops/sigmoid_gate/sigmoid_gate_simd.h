// Inside sigmoid_gate: the kernel over a vector type, which the file of each instruction set
// includes. `Simd` has internal linkage, and so has every instance.
#pragma once

#include "ops/sigmoid_gate/sigmoid_gate_kernels.h"
#include "ops/simd/silu.h"

namespace atom::ops {

template <typename Simd, typename T>
void sigmoid_gate_row(const SigmoidGateArgs& args, const T* x, const T* gate, T* out) {
  using Float = typename Simd::Float;
  constexpr int kWidth = Simd::kWidth;
  const int64_t whole = args.size / kWidth * kWidth, rest = args.size - whole;
  const Float row_gate = Simd::set(Simd::sum(Simd::load(gate, 1)));
  const auto gated = [&](Float value, Float z, Float old) {
    return Simd::fma(value, sigmoid<Simd>(z), old);
  };
  for (int64_t i = 0; i < whole; i += kWidth) {
    const Float z = args.gate_per_row ? row_gate : Simd::load(gate + i);
    const Float old = args.adds ? Simd::load(out + i) : Simd::zero();
    Simd::store(out + i, gated(Simd::load(x + i), z, old));
  }
  if (rest == 0) return;
  const Float z = args.gate_per_row ? row_gate : Simd::load(gate + whole, rest);
  const Float old = args.adds ? Simd::load(out + whole, rest) : Simd::zero();
  Simd::store(out + whole, rest, gated(Simd::load(x + whole, rest), z, old));
}

template <typename Simd, typename T>
void sigmoid_gate_rows_of(const SigmoidGateArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t token = row / args.num_heads, head = row % args.num_heads;
    sigmoid_gate_row<Simd>(
        args,
        static_cast<const T*>(args.x) + token * args.x_strides[0] + head * args.x_strides[1],
        static_cast<const T*>(args.gate) + token * args.gate_strides[0] +
            head * args.gate_strides[1],
        static_cast<T*>(args.out) + token * args.out_strides[0] + head * args.out_strides[1]);
  }
}

template <typename Simd>
void sigmoid_gate_rows(const SigmoidGateArgs& args, int64_t begin, int64_t end) {
  switch (args.element) {
    case Element::kFloat32:
      return sigmoid_gate_rows_of<Simd, float>(args, begin, end);
    case Element::kFloat16:
      return sigmoid_gate_rows_of<Simd, Float16Bits>(args, begin, end);
    case Element::kBFloat16:
      return sigmoid_gate_rows_of<Simd, BFloat16Bits>(args, begin, end);
    case Element::kFloat8E4M3:
      __builtin_trap();  // no operator takes it as `element`
  }
}

}  // namespace atom::ops
