// Inside sparse_attention: the kernel over a vector type, which the file of each instruction set
// includes. `Simd` has internal linkage, and so has every instance.
//
// The selected keys are taken 64 at a time, with an online softmax over these tiles.
#pragma once

#include "ops/sparse_attention/sparse_attention_kernels.h"

namespace atom::ops {

constexpr int kSparseTileKeys = 64;

// Rows of q and out are the query heads of the group.
template <typename C>
struct SparseTile {
  alignas(64) float q[kSparseMaxGroup * kSparseMaxHeadDim];  // scaled, in units of log 2
  alignas(64) float out[kSparseMaxGroup * kSparseMaxHeadDim];
  alignas(64) float weights[kSparseMaxGroup * kSparseTileKeys];
  float largest[kSparseMaxGroup];
  float total[kSparseMaxGroup];
  const C* keys[kSparseTileKeys];
  const C* values[kSparseTileKeys];
};

// How many of the tile's places the row of indices fills.
template <typename C>
static int64_t locate_selected(const SparseAttentionArgs& args,
                               const int32_t* indices,
                               int64_t count,
                               const PagedRow& row,
                               int64_t kv_head,
                               SparseTile<C>& tile) {
  for (int64_t i = 0; i < count; ++i) {
    if (indices[i] == -1) return i;
    const int64_t block = row.block_table[indices[i] / args.batch.block_size];
    const int64_t slot = block * args.batch.block_size + indices[i] % args.batch.block_size;
    const int64_t offset = (slot * args.num_kv_heads + kv_head) * args.head_dim;
    tile.keys[i] = static_cast<const C*>(args.k_cache) + offset;
    tile.values[i] = static_cast<const C*>(args.v_cache) + offset;
  }
  return count;
}

// Scores of kR heads with one key.
template <typename Simd, int kR, typename C>
void score_key(const float* q, const C* key, int64_t head_dim, float* scores) {
  typename Simd::Float sums[kR];
#pragma GCC unroll 4
  for (int r = 0; r < kR; ++r) sums[r] = Simd::zero();
  for (int64_t d = 0; d < head_dim; d += Simd::kWidth) {
    const auto k = Simd::load(key + d);
#pragma GCC unroll 4
    for (int r = 0; r < kR; ++r) {
      sums[r] = Simd::fma(Simd::load(q + r * head_dim + d), k, sums[r]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kR; ++r) scores[r * kSparseTileKeys] = Simd::sum(sums[r]);
}

// Scores become weights; what was summed before shrinks to the new largest score.
template <typename Simd, typename C>
void soften_head(const SparseAttentionArgs& args,
                 int64_t head,
                 int64_t count,
                 SparseTile<C>& tile) {
  using Float = typename Simd::Float;
  constexpr int kWidth = Simd::kWidth;
  float* weights = tile.weights + head * kSparseTileKeys;
  float largest = tile.largest[head];
  for (int64_t i = 0; i < count; ++i) largest = weights[i] > largest ? weights[i] : largest;
  const Float difference = Simd::sub(Simd::set(tile.largest[head]), Simd::set(largest));
  const Float shrink = Simd::exp2(difference);
  Float total = Simd::mul(Simd::keep(shrink, 0, 1, Simd::zero()), Simd::set(tile.total[head]));
  for (int64_t i = 0; i < count; i += kWidth) {
    const Float weight = Simd::exp2(Simd::sub(Simd::load(weights + i), Simd::set(largest)));
    const Float kept = Simd::keep(weight, 0, count - i, Simd::zero());
    Simd::store(weights + i, kept);
    total = Simd::add(total, kept);
  }
  tile.largest[head] = largest;
  tile.total[head] = Simd::sum(total);
  float* out = tile.out + head * args.head_dim;
  for (int64_t d = 0; d < args.head_dim; d += kWidth) {
    Simd::store(out + d, Simd::mul(shrink, Simd::load(out + d)));
  }
}

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
