// Inside attention: the rows of a task against one packed tile of keys and values.
#pragma once

#include <stdint.h>

#include "ops/attention/cpu/soften.h"
#include "ops/attention/cpu/tiles.h"

namespace atom::ops {

// Rows [row, row + kR) against the packed tile.
template <typename Math, int kR>
void attend_rows(AttentionTiles<Math>& tiles, int64_t row, int64_t tile_begin, int64_t vectors) {
  constexpr int kWidth = Math::Simd::kWidth;
  constexpr int kTile = kAttentionTileKeys;
  alignas(64) float shrink[kWidth];
  multiply<Math, kR>(tiles.q + row * tiles.head_dim,
                     tiles.head_dim,
                     tiles.keys,
                     kTile,
                     tiles.head_dim / Math::kDepth,
                     vectors,
                     nullptr,
                     tiles.scores,
                     kTile);
  soften<Math, kR>(tiles, row, tile_begin, vectors, tiles.scores, tiles.weights, shrink);
  multiply<Math, kR>(tiles.weights,
                     kTile,
                     tiles.values,
                     tiles.padded_dim,
                     vectors * kWidth / Math::kDepth,
                     tiles.padded_dim / kWidth,
                     shrink,
                     tiles.out + row * tiles.padded_dim,
                     tiles.padded_dim);
}

// Rows of all numbers that a kind of arithmetic by tiles has at once, against the packed tile.
template <typename Math>
void attend_rows_by_tiles(
    AttentionTiles<Math>& tiles, int64_t row, int64_t rows, int64_t tile_begin, int64_t vectors) {
  using Simd = typename Math::Simd;
  constexpr int kWidth = Simd::kWidth;
  constexpr int kTile = kAttentionTileKeys;
  constexpr int64_t kSize = sizeof(typename Math::Operand);
  if (rows != tiles.rows_of_tiles) {
    Math::begin(rows);
    tiles.rows_of_tiles = rows;
  }
  Math::multiply(tiles.q + row * tiles.head_dim,
                 tiles.head_dim * kSize,
                 tiles.keys,
                 kTile * Math::kDepth * kSize,
                 tiles.head_dim / (kWidth * Math::kDepth),
                 vectors,
                 false,
                 tiles.scores + row * kTile,
                 kTile * sizeof(float));
  alignas(64) float shrink[Math::kRows];
  soften_rows(tiles, row, rows, tile_begin, vectors, shrink);
  for (int64_t r = 0; r < rows; ++r) {
    if (shrink[r] == 1.0f) continue;
    float* out = tiles.out + (row + r) * tiles.padded_dim;
    for (int64_t d = 0; d < tiles.padded_dim; d += kWidth) {
      Simd::store(out + d, Simd::mul(Simd::load(out + d), Simd::set(shrink[r])));
    }
  }
  Math::multiply(tiles.weights + row * kTile,
                 kTile * kSize,
                 tiles.values,
                 tiles.padded_dim * Math::kDepth * kSize,
                 vectors * kWidth / Math::kKeyMultiple,
                 tiles.padded_dim / kWidth,
                 true,
                 tiles.out + row * tiles.padded_dim,
                 tiles.padded_dim * sizeof(float));
}

// Rows [begin, end) against the packed tile, in blocks that skip the keys none of their rows sees.
template <typename Math>
void attend_tile(AttentionTiles<Math>& tiles,
                 int64_t row_begin,
                 int64_t row_end,
                 int64_t tile_begin) {
  constexpr int kWidth = Math::Simd::kWidth;
  for (int64_t row = row_begin; row < row_end; row += Math::kRows) {
    const int64_t rows = row_end - row < Math::kRows ? row_end - row : Math::kRows;
    const int64_t first = tiles.positions[row], last = tiles.positions[row + rows - 1];
    const int64_t end =
        visible_span(last, tiles.sliding_window, tile_begin, kAttentionTileKeys).end;
    const int64_t begin =
        visible_span(first, tiles.sliding_window, tile_begin, kAttentionTileKeys).begin;
    if (end <= 0 || begin >= kAttentionTileKeys) continue;
    const int64_t vectors = round_up(end, key_multiple<Math>) / kWidth;
    if constexpr (HasTiles<Math>) {
      attend_rows_by_tiles(tiles, row, rows, tile_begin, vectors);
      continue;
    }
    switch (rows) {
      case 1:
        attend_rows<Math, 1>(tiles, row, tile_begin, vectors);
        break;
      case 2:
        attend_rows<Math, 2>(tiles, row, tile_begin, vectors);
        break;
      case 3:
        attend_rows<Math, 3>(tiles, row, tile_begin, vectors);
        break;
      case 4:
        attend_rows<Math, 4>(tiles, row, tile_begin, vectors);
        break;
      case 5:
        attend_rows<Math, 5>(tiles, row, tile_begin, vectors);
        break;
      default:
        attend_rows<Math, 6>(tiles, row, tile_begin, vectors);
    }
  }
}

}  // namespace atom::ops
