// Inside sparse_attention: a tile of selected keys and its scores, over a vector type.
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

}  // namespace atom::ops
