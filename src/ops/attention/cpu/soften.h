// Inside attention: scores to weights by a running softmax.
#pragma once

#include <math.h>
#include <stdint.h>

#include "ops/attention/cpu/pack.h"
#include "ops/attention/cpu/tiles.h"

namespace atom::ops {

// Below any score; its differences with scores stay finite.
constexpr float kAttentionLowest = -1e30f;
constexpr float kAttentionLog2E = 1.44269504f;

// Keys of the tile that the row at `position` sees, relative to the tile.
static inline __attribute__((always_inline)) AttentionSpan visible_span(int64_t position,
                                                                        int64_t sliding_window,
                                                                        int64_t tile_begin,
                                                                        int64_t limit) {
  const int64_t begin = sliding_window == 0 ? 0 : position - sliding_window + 1 - tile_begin;
  const int64_t end = position + 1 - tile_begin;
  return {begin < 0 ? 0 : begin, end > limit ? limit : end};
}

// Scores to weights for rows [row, row + kR) over `vectors` vectors of keys; updates the running
// largest score and sum, and returns what the rows' outputs shrink by.
template <typename Math, int kR>
void soften(AttentionTiles<Math>& tiles,
            int64_t row,
            int64_t tile_begin,
            int64_t vectors,
            float* scores,
            typename Math::Operand* weights,
            float* shrink) {
  using Simd = typename Math::Simd;
  using Float = typename Simd::Float;
  constexpr int kWidth = Simd::kWidth;
  constexpr int kTile = kAttentionTileKeys;
  const Float scale = Simd::set(tiles.scale);
  alignas(64) float largest[kWidth] = {};
  alignas(64) float change[kWidth] = {};
  for (int r = 0; r < kR; ++r) {
    float* row_scores = scores + r * kTile;
    const AttentionSpan span =
        visible_span(tiles.positions[row + r], tiles.sliding_window, tile_begin, vectors * kWidth);
    Float top = Simd::set(tiles.largest[row + r]);
    for (int64_t n = 0; n < vectors; ++n) {
      Float score = Simd::mul(Simd::load(row_scores + n * kWidth), scale);
      const int64_t begin = span.begin - n * kWidth, end = span.end - n * kWidth;
      if (begin > 0 || end < kWidth) score = Simd::keep(score, begin, end, Simd::set(-INFINITY));
      Simd::store(row_scores + n * kWidth, score);
      top = Simd::max(top, score);
    }
    largest[r] = Simd::largest(top);
    change[r] = tiles.largest[row + r] - largest[r];
    tiles.largest[row + r] = largest[r];
  }
  Simd::store(shrink, Simd::exp2(Simd::load(change)));
  for (int r = 0; r < kR; ++r) {
    const Float top = Simd::set(largest[r]);
    Float sum = Simd::zero();
    for (int64_t n = 0; n < vectors; ++n) {
      const int64_t at = r * kTile + n * kWidth;
      const Float weight = Simd::exp2(Simd::sub(Simd::load(scores + at), top));
      sum = Simd::add(sum, weight);
      Math::store_weights(weights + at, weight);
    }
    float* sums = tiles.sums + (row + r) * kWidth;
    Simd::store(sums, Simd::fma(Simd::load(sums), Simd::set(shrink[r]), sum));
  }
}

// Any number of rows from `first_row` on, after their scores are there; `shrink` is of the first.
template <typename Math>
void soften_rows(AttentionTiles<Math>& tiles,
                 int64_t first_row,
                 int64_t num_rows,
                 int64_t tile_begin,
                 int64_t vectors,
                 float* shrink) {
  constexpr int kTile = kAttentionTileKeys;
  alignas(64) float factors[Math::Simd::kWidth];
  for (int64_t done = 0; done < num_rows;) {
    const int64_t row = first_row + done, left = num_rows - done;
    float* scores = tiles.scores + row * kTile;
    typename Math::Operand* weights = tiles.weights + row * kTile;
    const int count = left >= 4 ? 4 : left >= 2 ? 2 : 1;
    if (count == 4) {
      soften<Math, 4>(tiles, row, tile_begin, vectors, scores, weights, factors);
    } else if (count == 2) {
      soften<Math, 2>(tiles, row, tile_begin, vectors, scores, weights, factors);
    } else {
      soften<Math, 1>(tiles, row, tile_begin, vectors, scores, weights, factors);
    }
    for (int r = 0; r < count; ++r) shrink[done + r] = factors[r];
    done += count;
  }
}

}  // namespace atom::ops
