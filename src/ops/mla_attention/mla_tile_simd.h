// Inside mla_attention: a tile of keys and the heads' scores with it, over a vector type.
#pragma once

#include "ops/mla_attention/mla_attention_kernels.h"

namespace atom::ops {

constexpr int kMlaTileKeys = 32;
constexpr int kMlaHeads = 4;  // that registers hold at a time; others of a task are zeros
constexpr int kMlaVectors = 2;

struct MlaTile {
  alignas(64) float q[kMlaTaskHeads * kMlaMaxWidth];  // scaled, in units of log 2
  alignas(64) float out[kMlaTaskHeads * kMlaMaxWidth];
  alignas(64) float rows[kMlaTileKeys * kMlaMaxWidth];
  alignas(64) float weights[kMlaTaskHeads * kMlaTileKeys];
  float largest[kMlaTaskHeads];
  float total[kMlaTaskHeads];
  float shrink[kMlaTaskHeads];
};

// Expands the rows of keys [first, first + count) of the token; returns how many there are.
template <typename Simd, typename C>
int64_t expand_rows(const MlaAttentionArgs& args,
                    int64_t token,
                    const PagedRow& row,
                    int64_t first,
                    int64_t count,
                    MlaTile& tile) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t key = first + i;
    const int64_t position = args.indices == nullptr ? key : args.indices[token * args.top_k + key];
    if (position < 0) return i;
    const int64_t block = row.block_table[position / args.batch.block_size];
    const int64_t slot = block * args.batch.block_size + position % args.batch.block_size;
    const C* from = static_cast<const C*>(args.cache) + slot * args.width;
    float* to = tile.rows + i * args.width;
    for (int64_t d = 0; d < args.width; d += Simd::kWidth)
      Simd::store(to + d, Simd::load(from + d));
  }
  return count;
}

// Scores of kMlaHeads heads from `head` on with kVectors keys from `key` on.
template <typename Simd, int kKeys>
void score_rows(const MlaAttentionArgs& args, int64_t head, int64_t key, MlaTile& tile) {
  typename Simd::Float sums[kMlaHeads][kKeys];
  const float* q = tile.q + head * args.width;
  const float* rows = tile.rows + key * args.width;
#pragma GCC unroll 4
  for (int h = 0; h < kMlaHeads; ++h) {
#pragma GCC unroll 2
    for (int k = 0; k < kKeys; ++k) sums[h][k] = Simd::zero();
  }
  for (int64_t d = 0; d < args.width; d += Simd::kWidth) {
    typename Simd::Float keys[kKeys];
#pragma GCC unroll 2
    for (int k = 0; k < kKeys; ++k) keys[k] = Simd::load(rows + k * args.width + d);
#pragma GCC unroll 4
    for (int h = 0; h < kMlaHeads; ++h) {
      const auto query = Simd::load(q + h * args.width + d);
#pragma GCC unroll 2
      for (int k = 0; k < kKeys; ++k) sums[h][k] = Simd::fma(query, keys[k], sums[h][k]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kMlaHeads; ++h) {
#pragma GCC unroll 2
    for (int k = 0; k < kKeys; ++k) {
      tile.weights[(head + h) * kMlaTileKeys + key + k] = Simd::sum(sums[h][k]);
    }
  }
}

// A head's scores become weights; what was summed before will shrink to the new largest score.
template <typename Simd>
void soften_scores(int64_t head, int64_t count, MlaTile& tile) {
  using Float = typename Simd::Float;
  float* weights = tile.weights + head * kMlaTileKeys;
  float largest = tile.largest[head];
  for (int64_t i = 0; i < count; ++i) largest = weights[i] > largest ? weights[i] : largest;
  alignas(64) float shrink[Simd::kWidth];
  Simd::store(shrink, Simd::exp2(Simd::set(tile.largest[head] - largest)));
  Float total = Simd::zero();
  for (int64_t i = 0; i < count; i += Simd::kWidth) {
    const Float weight = Simd::exp2(Simd::sub(Simd::load(weights + i), Simd::set(largest)));
    const Float kept = Simd::keep(weight, 0, count - i, Simd::zero());
    Simd::store(weights + i, kept);
    total = Simd::add(total, kept);
  }
  tile.largest[head] = largest;
  tile.shrink[head] = shrink[0];
  tile.total[head] = tile.total[head] * shrink[0] + Simd::sum(total);
}

}  // namespace atom::ops
