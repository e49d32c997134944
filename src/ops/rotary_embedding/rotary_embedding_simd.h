// Inside rotary_embedding: the kernel over a vector type, which the file of each instruction set
// includes. `Simd` has internal linkage, and so has every instance.
#pragma once

#include "ops/rotary_embedding/rotary_embedding_kernels.h"

namespace atom::ops {

template <typename Simd, typename T>
void rotate_head_neox(T* x, const float* cosines, int64_t half) {
  using Float = typename Simd::Float;
  for (int64_t i = 0; i < half; i += Simd::kWidth) {
    const Float c = Simd::load(cosines + i), s = Simd::load(cosines + half + i);
    const Float a = Simd::load(x + i), b = Simd::load(x + half + i);
    Simd::store(x + i, Simd::sub(Simd::mul(a, c), Simd::mul(b, s)));
    Simd::store(x + half + i, Simd::fma(b, c, Simd::mul(a, s)));
  }
}

template <typename Simd, typename T>
void rotate_head_interleaved(T* x, const float* cosines, int64_t half) {
  using Float = typename Simd::Float;
  for (int64_t i = 0; i < half; i += Simd::kWidth / 2) {
    const Float c = Simd::load_doubled(cosines + i), s = Simd::load_doubled(cosines + half + i);
    const Float ab = Simd::load(x + 2 * i);
    const Float ba = Simd::mul(Simd::swap_pairs(ab), s);
    Simd::store(x + 2 * i, Simd::fma_sub_add(ab, c, ba));
  }
}

template <typename Simd, typename T>
void rotate_tokens(const RotaryEmbeddingArgs& args, int64_t begin, int64_t end) {
  const int64_t half = args.rotary_dim / 2;
  for (int64_t token = begin; token < end; ++token) {
    const float* cosines = args.cos_sin + args.positions[token] * args.cos_sin_stride;
    for (const RotaryEmbeddingArgs::Heads& heads : args.heads) {
      T* x = static_cast<T*>(heads.data) + token * heads.token_stride;
      for (int64_t head = 0; head < heads.num_heads; ++head, x += heads.head_stride) {
        if (args.interleaved) {
          rotate_head_interleaved<Simd>(x, cosines, half);
        } else {
          rotate_head_neox<Simd>(x, cosines, half);
        }
      }
    }
  }
}

template <typename Simd>
void rotary_embedding_tokens(const RotaryEmbeddingArgs& args, int64_t begin, int64_t end) {
  switch (args.element) {
    case Element::kFloat32:
      return rotate_tokens<Simd, float>(args, begin, end);
    case Element::kFloat16:
      return rotate_tokens<Simd, Float16Bits>(args, begin, end);
    case Element::kBFloat16:
      return rotate_tokens<Simd, BFloat16Bits>(args, begin, end);
    case Element::kFloat8E4M3:
      __builtin_trap();  // no operator takes it as `element`
  }
}

}  // namespace atom::ops
