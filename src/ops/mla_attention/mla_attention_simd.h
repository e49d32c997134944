// Inside mla_attention: the kernel over a vector type, which the file of each instruction set
// includes. `Simd` has internal linkage, and so has every instance.
//
// Keys are taken 32 at a time, in the order of their positions or indices, with an online softmax
// over these tiles. A tile's rows are expanded to float32 once for all heads of the task. Every
// head's arithmetic is the same whatever heads are beside it.
#pragma once

#include "ops/mla_attention/mla_tile_simd.h"

namespace atom::ops {

template <typename Simd>
void add_latents(const MlaAttentionArgs& args, int64_t head, int64_t count, MlaTile& tile) {
  using Float = typename Simd::Float;
  const float* weights = tile.weights + head * kMlaTileKeys;
  for (int64_t d = 0; d < args.rank; d += kMlaVectors * Simd::kWidth) {
    Float sums[kMlaHeads][kMlaVectors];
    float* out = tile.out + head * args.rank + d;
#pragma GCC unroll 4
    for (int h = 0; h < kMlaHeads; ++h) {
      const Float shrink = Simd::set(tile.shrink[head + h]);
#pragma GCC unroll 2
      for (int v = 0; v < kMlaVectors; ++v) {
        sums[h][v] = Simd::mul(shrink, Simd::load(out + h * args.rank + v * Simd::kWidth));
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      const float* row = tile.rows + i * args.width + d;
#pragma GCC unroll 4
      for (int h = 0; h < kMlaHeads; ++h) {
        const Float weight = Simd::set(weights[h * kMlaTileKeys + i]);
#pragma GCC unroll 2
        for (int v = 0; v < kMlaVectors; ++v) {
          sums[h][v] = Simd::fma(weight, Simd::load(row + v * Simd::kWidth), sums[h][v]);
        }
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < kMlaHeads; ++h) {
#pragma GCC unroll 2
      for (int v = 0; v < kMlaVectors; ++v) {
        Simd::store(out + h * args.rank + v * Simd::kWidth, sums[h][v]);
      }
    }
  }
}

// Queries of the heads, and zeros up to a multiple of kMlaHeads of them; returns that multiple.
template <typename Simd, typename T>
int64_t load_queries(const MlaAttentionArgs& args,
                     int64_t token,
                     int64_t first_head,
                     int64_t num_heads,
                     MlaTile& tile) {
  constexpr float kLog2E = 1.44269504f;
  const auto scale = Simd::set(args.scale * kLog2E);
  const int64_t padded = (num_heads + kMlaHeads - 1) / kMlaHeads * kMlaHeads;
  for (int64_t h = 0; h < padded; ++h) {
    const int64_t head = first_head + (h < num_heads ? h : 0);
    const T* latent = static_cast<const T*>(args.q_latent) + token * args.q_latent_strides[0] +
                      head * args.q_latent_strides[1];
    const T* rope = static_cast<const T*>(args.q_rope) + token * args.q_rope_strides[0] +
                    head * args.q_rope_strides[1];
    float* q = tile.q + h * args.width;
    for (int64_t d = 0; d < args.rank; d += Simd::kWidth) {
      Simd::store(q + d, Simd::mul(scale, Simd::load(latent + d)));
    }
    for (int64_t d = 0; d < args.width - args.rank; d += Simd::kWidth) {
      Simd::store(q + args.rank + d, Simd::mul(scale, Simd::load(rope + d)));
    }
    for (int64_t d = 0; d < args.rank; d += Simd::kWidth) {
      Simd::store(tile.out + h * args.rank + d, Simd::zero());
    }
    for (int i = 0; i < kMlaTileKeys; ++i) tile.weights[h * kMlaTileKeys + i] = 0;
    tile.largest[h] = -3e38f;
    tile.total[h] = 0;
  }
  return padded;
}

template <typename Simd, typename T, typename C>
void attend_latents(const MlaAttentionArgs& args,
                    int64_t token,
                    const PagedRow& row,
                    int64_t first_head,
                    int64_t num_heads) {
  MlaTile tile;
  const int64_t padded = load_queries<Simd, T>(args, token, first_head, num_heads, tile);
  const int64_t most = mla_most_keys(args, row);
  for (int64_t first = 0; first < most; first += kMlaTileKeys) {
    const int64_t wanted = most - first < kMlaTileKeys ? most - first : kMlaTileKeys;
    const int64_t count = expand_rows<Simd, C>(args, token, row, first, wanted, tile);
    for (int64_t head = 0; head < padded && count > 0; head += kMlaHeads) {
      int64_t key = 0;
      for (; key + 2 <= count; key += 2) score_rows<Simd, 2>(args, head, key, tile);
      if (key < count) score_rows<Simd, 1>(args, head, key, tile);
      for (int h = 0; h < kMlaHeads; ++h) soften_scores<Simd>(head + h, count, tile);
      add_latents<Simd>(args, head, count, tile);
    }
    if (count < wanted) break;
  }
  for (int64_t h = 0; h < num_heads; ++h) {
    T* out = static_cast<T*>(args.out) + token * args.out_strides[0] +
             (first_head + h) * args.out_strides[1];
    const auto factor = Simd::set(tile.total[h] == 0 ? 0 : 1 / tile.total[h]);
    for (int64_t d = 0; d < args.rank; d += Simd::kWidth) {
      Simd::store(out + d, Simd::mul(factor, Simd::load(tile.out + h * args.rank + d)));
    }
  }
}

template <typename Simd, typename T>
void mla_attention_of(const MlaAttentionArgs& args,
                      int64_t token,
                      const PagedRow& row,
                      int64_t first_head,
                      int64_t num_heads) {
  if (args.float8_cache) {
    attend_latents<Simd, T, Float8Bits>(args, token, row, first_head, num_heads);
  } else {
    attend_latents<Simd, T, T>(args, token, row, first_head, num_heads);
  }
}

template <typename Simd>
void mla_attention_heads(const MlaAttentionArgs& args,
                         int64_t token,
                         const PagedRow& row,
                         int64_t first_head,
                         int64_t num_heads) {
  switch (args.element) {
    case Element::kFloat32:
      return mla_attention_of<Simd, float>(args, token, row, first_head, num_heads);
    case Element::kFloat16:
      return mla_attention_of<Simd, Float16Bits>(args, token, row, first_head, num_heads);
    case Element::kBFloat16:
      return mla_attention_of<Simd, BFloat16Bits>(args, token, row, first_head, num_heads);
    case Element::kFloat8E4M3:
      __builtin_trap();  // no operator takes it as `element`
  }
}

}  // namespace atom::ops
