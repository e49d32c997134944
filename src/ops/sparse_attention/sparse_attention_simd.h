// Inside sparse_attention: the kernel over a vector type, which the file of each instruction set
// includes. `Simd` has internal linkage, and so has every instance.
//
// The selected keys are taken 64 at a time, with an online softmax over these tiles.
#pragma once

#include "ops/sparse_attention/sparse_tile_simd.h"

namespace atom::ops {

template <typename Simd, int kR, typename C>
void add_values(const SparseAttentionArgs& args, int64_t head, int64_t count, SparseTile<C>& tile) {
  using Float = typename Simd::Float;
  for (int64_t d = 0; d < args.head_dim; d += Simd::kWidth) {
    Float sums[kR];
    float* out = tile.out + head * args.head_dim + d;
#pragma GCC unroll 4
    for (int r = 0; r < kR; ++r) sums[r] = Simd::load(out + r * args.head_dim);
    for (int64_t i = 0; i < count; ++i) {
      const Float value = Simd::load(tile.values[i] + d);
#pragma GCC unroll 4
      for (int r = 0; r < kR; ++r) {
        const float weight = tile.weights[(head + r) * kSparseTileKeys + i];
        sums[r] = Simd::fma(Simd::set(weight), value, sums[r]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kR; ++r) Simd::store(out + r * args.head_dim, sums[r]);
  }
}

template <typename Simd, typename C>
void attend_tile(const SparseAttentionArgs& args, int64_t count, SparseTile<C>& tile) {
  const int64_t group = args.num_heads / args.num_kv_heads;
  for (int64_t i = 0; i < count; ++i) {
    int64_t head = 0;
    for (; head + 4 <= group; head += 4) {
      score_key<Simd, 4>(tile.q + head * args.head_dim,
                         tile.keys[i],
                         args.head_dim,
                         tile.weights + head * kSparseTileKeys + i);
    }
    for (; head < group; ++head) {
      score_key<Simd, 1>(tile.q + head * args.head_dim,
                         tile.keys[i],
                         args.head_dim,
                         tile.weights + head * kSparseTileKeys + i);
    }
  }
  for (int64_t head = 0; head < group; ++head) soften_head<Simd>(args, head, count, tile);
  int64_t head = 0;
  for (; head + 4 <= group; head += 4) add_values<Simd, 4>(args, head, count, tile);
  for (; head < group; ++head) add_values<Simd, 1>(args, head, count, tile);
}

template <typename Simd, typename T, typename C>
void sparse_attention_of(const SparseAttentionArgs& args,
                         int64_t token,
                         const PagedRow& row,
                         int64_t kv_head) {
  constexpr float kLog2E = 1.44269504f;
  using Float = typename Simd::Float;
  const int64_t group = args.num_heads / args.num_kv_heads, first_head = kv_head * group;
  SparseTile<C> tile;
  for (int64_t head = 0; head < group; ++head) {
    const T* q = static_cast<const T*>(args.q) + token * args.q_strides[0] +
                 (first_head + head) * args.q_strides[1];
    for (int64_t d = 0; d < args.head_dim; d += Simd::kWidth) {
      const Float scaled = Simd::mul(Simd::set(args.scale * kLog2E), Simd::load(q + d));
      Simd::store(tile.q + head * args.head_dim + d, scaled);
      Simd::store(tile.out + head * args.head_dim + d, Simd::zero());
    }
    tile.largest[head] = -3e38f;
    tile.total[head] = 0;
  }
  for (int i = 0; i < kSparseMaxGroup * kSparseTileKeys; ++i) tile.weights[i] = 0;
  const int32_t* indices = args.indices + token * args.top_k;
  for (int64_t first = 0; first < args.top_k; first += kSparseTileKeys) {
    const int64_t left = args.top_k - first;
    const int64_t most = left < kSparseTileKeys ? left : kSparseTileKeys;
    const int64_t count = locate_selected(args, indices + first, most, row, kv_head, tile);
    if (count > 0) attend_tile<Simd>(args, count, tile);
    if (count < most) break;
  }
  for (int64_t head = 0; head < group; ++head) {
    T* out = static_cast<T*>(args.out) + token * args.out_strides[0] +
             (first_head + head) * args.out_strides[1];
    const float total = tile.total[head];
    const Float factor = Simd::set(total == 0 ? 0 : args.v_scale / total);
    for (int64_t d = 0; d < args.head_dim; d += Simd::kWidth) {
      Simd::store(out + d, Simd::mul(factor, Simd::load(tile.out + head * args.head_dim + d)));
    }
  }
}

template <typename Simd, typename T>
void sparse_attention_head_of(const SparseAttentionArgs& args,
                              int64_t token,
                              const PagedRow& row,
                              int64_t kv_head) {
  if (args.float8_cache) {
    sparse_attention_of<Simd, T, Float8Bits>(args, token, row, kv_head);
  } else {
    sparse_attention_of<Simd, T, T>(args, token, row, kv_head);
  }
}

template <typename Simd>
void sparse_attention_head(const SparseAttentionArgs& args,
                           int64_t token,
                           const PagedRow& row,
                           int64_t kv_head) {
  switch (args.element) {
    case Element::kFloat32:
      return sparse_attention_head_of<Simd, float>(args, token, row, kv_head);
    case Element::kFloat16:
      return sparse_attention_head_of<Simd, Float16Bits>(args, token, row, kv_head);
    case Element::kBFloat16:
      return sparse_attention_head_of<Simd, BFloat16Bits>(args, token, row, kv_head);
    case Element::kFloat8E4M3:
      __builtin_trap();  // no operator takes it as `element`
  }
}

}  // namespace atom::ops
