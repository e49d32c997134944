// Inside indexer_top_k: the scores over a vector type, which the file of each instruction set
// includes. `Simd` has internal linkage, and so has every instance.
#pragma once

#include "ops/indexer_top_k/indexer_key_tile.h"

namespace atom::ops {

// Adds what kH heads contribute to the block's scores.
template <typename Simd, int kH>
void add_heads(const float* q,
               const float* keys,
               const float* weights,
               int64_t head_dim,
               bool is_relu,
               float* scores) {
  using Float = typename Simd::Float;
  constexpr int kV = IndexerTile<Simd>::kVectors, kWidth = Simd::kWidth;
  // Registers hold the sums of two vectors of keys at a time.
  for (int first = 0; first < kV; first += 2) {
    Float sums[kH][2];
#pragma GCC unroll 8
    for (int h = 0; h < kH; ++h) sums[h][0] = sums[h][1] = Simd::zero();
    for (int64_t d = 0; d < head_dim; ++d) {
      const float* row = keys + d * kIndexerScoreBlock + first * kWidth;
      const Float k0 = Simd::load(row), k1 = Simd::load(row + kWidth);
#pragma GCC unroll 8
      for (int h = 0; h < kH; ++h) {
        const Float query = Simd::set(q[h * head_dim + d]);
        sums[h][0] = Simd::fma(query, k0, sums[h][0]);
        sums[h][1] = Simd::fma(query, k1, sums[h][1]);
      }
    }
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      float* to = scores + (first + v) * kWidth;
      Float total = Simd::load(to);
#pragma GCC unroll 8
      for (int h = 0; h < kH; ++h) {
        // With the zero in front a NaN stays.
        const Float product = is_relu ? Simd::max(Simd::zero(), sums[h][v]) : sums[h][v];
        total = Simd::fma(Simd::set(weights[h]), product, total);
      }
      Simd::store(to, total);
    }
  }
}

template <typename Simd, typename T>
void score_row(const IndexerTopKArgs& args,
               const float* weights,
               int64_t token,
               const PagedRow& row,
               float* scores) {
  using Float = typename Simd::Float;
  constexpr int kHeads = Simd::kWidth == 16 ? 8 : 4;
  IndexerTile<Simd> tile;
  const int64_t size = args.num_heads * args.head_dim;
  const T* q = static_cast<const T*>(args.q) + token * args.q_stride;
  for (int64_t i = 0; i < size; i += Simd::kWidth) Simd::store(tile.q + i, Simd::load(q + i));
  const bool is_relu = args.activation == IndexerActivation::kRelu;
  for (int64_t first = 0; first <= row.position; first += kIndexerScoreBlock) {
    load_keys<Simd, T>(args, row, first, tile.keys);
    float* block = scores + first;
    for (int i = 0; i < kIndexerScoreBlock; ++i) block[i] = 0;
    int64_t head = 0;
    for (; head + kHeads <= args.num_heads; head += kHeads) {
      add_heads<Simd, kHeads>(
          tile.q + head * args.head_dim, tile.keys, weights + head, args.head_dim, is_relu, block);
    }
    for (; head < args.num_heads; ++head) {
      add_heads<Simd, 1>(
          tile.q + head * args.head_dim, tile.keys, weights + head, args.head_dim, is_relu, block);
    }
    for (int i = 0; i < kIndexerScoreBlock; i += Simd::kWidth) {
      const Float scaled = Simd::mul(Simd::set(args.scale), Simd::load(block + i));
      Simd::store(block + i, scaled);
    }
  }
}

template <typename Simd, typename W>
void weights_of(const IndexerTopKArgs& args, int64_t token, float* out) {
  const W* weights = static_cast<const W*>(args.weights) + token * args.weights_stride;
  for (int64_t head = 0; head < args.num_heads; ++head) {
    out[head] = Simd::sum(Simd::load(weights + head, 1));
  }
}

template <typename Simd>
void indexer_scores(const IndexerTopKArgs& args,
                    int64_t token,
                    const PagedRow& row,
                    float* scores) {
  float weights[kIndexerMaxQuerySize / 16];
  switch (args.weight_element) {
    case Element::kFloat32:
      weights_of<Simd, float>(args, token, weights);
      break;
    case Element::kFloat16:
      weights_of<Simd, Float16Bits>(args, token, weights);
      break;
    case Element::kBFloat16:
      weights_of<Simd, BFloat16Bits>(args, token, weights);
      break;
    case Element::kFloat8E4M3:
      __builtin_trap();  // no operator takes it as `element`
  }
  switch (args.element) {
    case Element::kFloat32:
      return score_row<Simd, float>(args, weights, token, row, scores);
    case Element::kFloat16:
      return score_row<Simd, Float16Bits>(args, weights, token, row, scores);
    case Element::kBFloat16:
      return score_row<Simd, BFloat16Bits>(args, weights, token, row, scores);
    case Element::kFloat8E4M3:
      __builtin_trap();  // no operator takes it as `element`
  }
}

}  // namespace atom::ops
