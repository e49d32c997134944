// Inside fused_moe by wide tiles: which rows of an expert a tile has.
#pragma once

namespace atom::ops::device::wide {

constexpr int kTileTokens = 256, kTokenUnit = 32;

// An expert's tiles share its rows evenly, by whole units. `rows` are the expert's.
struct RowShare {
  int first, end;
};
constexpr RowShare share_of(int tile, int rows) {
  const int num_tiles = (rows + kTileTokens - 1) / kTileTokens;
  const int units = (rows + num_tiles * kTokenUnit - 1) / (num_tiles * kTokenUnit);
  const int first = tile * units * kTokenUnit, end = first + units * kTokenUnit;
  return {first, end < rows ? end : rows};
}

// Whether shares follow each other to the last row, and none is more than a tile.
constexpr bool shares_all(int rows) {
  int next = 0;
  for (int tile = 0; tile * kTileTokens < rows; ++tile) {
    const RowShare share = share_of(tile, rows);
    if (share.first < rows && share.first != next) return false;
    if (share.end - share.first > kTileTokens) return false;
    next = share.end > share.first ? share.end : next;
  }
  return next == rows;
}
static_assert(shares_all(1) && shares_all(256) && shares_all(257) && shares_all(272) &&
              shares_all(513) && shares_all(2049) && shares_all(4000) && shares_all(65536));

}  // namespace atom::ops::device::wide
