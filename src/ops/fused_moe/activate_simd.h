// Inside fused_moe: the activation over a vector type, which the file of each instruction set
// includes. `Simd` has internal linkage, and so has every instance.
#pragma once

#include "ops/fused_moe/fused_moe_kernels.h"

namespace atom::ops {

// Comparisons keep a NaN that stands second.
template <typename Simd>
typename Simd::Float clamped_above(typename Simd::Float x, float limit) {
  const auto minus = Simd::set(-1.0f);
  return Simd::mul(minus, Simd::max(Simd::set(-limit), Simd::mul(minus, x)));
}

// gate * sigmoid(alpha * gate)
template <typename Simd>
typename Simd::Float gated(typename Simd::Float gate, float alpha) {
  const auto exponential = Simd::exp2(Simd::mul(gate, Simd::set(-1.44269504f * alpha)));
  return Simd::div(gate, Simd::add(Simd::set(1.0f), exponential));
}

template <typename Simd>
typename Simd::Float activated(const GatedActivation& activation,
                               typename Simd::Float gate,
                               typename Simd::Float up) {
  if (activation.kind == GatedActivationKind::kSilu) {
    return Simd::mul(gated<Simd>(gate, 1.0f), up);
  }
  const float limit = activation.limit;
  const auto within = Simd::max(Simd::set(-limit), clamped_above<Simd>(up, limit));
  return Simd::mul(gated<Simd>(clamped_above<Simd>(gate, limit), activation.alpha),
                   Simd::add(within, Simd::set(1.0f)));
}

template <typename Simd, typename T>
void activate_of(const ActivateArgs& args, int64_t begin, int64_t end) {
  constexpr int64_t kPiece = 4 * Simd::kWidth;
  const GatedActivation& activation = args.activation;
  for (int64_t row = begin; row < end; ++row) {
    const float* sums = args.sums + row * 2 * args.size;
    T* out = static_cast<T*>(args.out) + row * args.size;
    for (int64_t first = 0; first < args.size; first += kPiece) {
      const int64_t count = args.size - first < kPiece ? args.size - first : kPiece;
      float pairs[2][kPiece] = {};
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at = first + i;
        pairs[0][i] = activation.is_interleaved ? sums[2 * at] : sums[at];
        pairs[1][i] = activation.is_interleaved ? sums[2 * at + 1] : sums[args.size + at];
      }
      for (int64_t i = 0; i < count; i += Simd::kWidth) {
        const auto value =
            activated<Simd>(activation, Simd::load(pairs[0] + i), Simd::load(pairs[1] + i));
        if (count - i < Simd::kWidth) {
          Simd::store(out + first + i, count - i, value);
        } else {
          Simd::store(out + first + i, value);
        }
      }
    }
  }
}

// False for kinds that only the reference computes.
template <typename Simd>
bool activate_rows(const ActivateArgs& args, int64_t begin, int64_t end) {
  const GatedActivationKind kind = args.activation.kind;
  if (kind != GatedActivationKind::kSilu && kind != GatedActivationKind::kClampedSwiGlu) {
    return false;
  }
  switch (args.element) {
    case Element::kFloat32:
      activate_of<Simd, float>(args, begin, end);
      break;
    case Element::kFloat16:
      activate_of<Simd, Float16Bits>(args, begin, end);
      break;
    case Element::kBFloat16:
      activate_of<Simd, BFloat16Bits>(args, begin, end);
      break;
    case Element::kFloat8E4M3:
      __builtin_trap();  // no operator takes it as `element`
  }
  return true;
}

}  // namespace atom::ops
