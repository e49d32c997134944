// Inside fused_moe: which rows of an expert a tile has, where an expert's tiles share them evenly.
#pragma once

namespace atom::ops::device {

struct RowShare {
  int first, end;
};

// Of tiles of up to kTile rows, by whole units of kUnit. `rows` are the expert's.
template <int kTile, int kUnit>
constexpr RowShare share_of(int tile, int rows) {
  const int num_tiles = (rows + kTile - 1) / kTile;
  const int units = (rows + num_tiles * kUnit - 1) / (num_tiles * kUnit);
  const int first = tile * units * kUnit, end = first + units * kUnit;
  return {first, end < rows ? end : rows};
}

// Whether shares follow each other to the last row, and none is more than a tile.
template <int kTile, int kUnit>
constexpr bool shares_all(int rows) {
  int next = 0;
  for (int tile = 0; tile * kTile < rows; ++tile) {
    const RowShare share = share_of<kTile, kUnit>(tile, rows);
    if (share.first < rows && share.first != next) return false;
    if (share.end - share.first > kTile) return false;
    next = share.end > share.first ? share.end : next;
  }
  return next == rows;
}

template <int kTile, int kUnit>
constexpr bool shares_all_sizes() {
  return shares_all<kTile, kUnit>(1) && shares_all<kTile, kUnit>(kTile) &&
         shares_all<kTile, kUnit>(kTile + 1) && shares_all<kTile, kUnit>(kTile + 16) &&
         shares_all<kTile, kUnit>(2 * kTile + 1) && shares_all<kTile, kUnit>(8 * kTile + 1) &&
         shares_all<kTile, kUnit>(4000) && shares_all<kTile, kUnit>(65536);
}

}  // namespace atom::ops::device
