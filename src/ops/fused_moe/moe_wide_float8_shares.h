// Inside fused_moe by wide tiles in FP8: which rows of an expert the two blocks of a cluster have.
#pragma once

#include "ops/fused_moe/moe_wide_float8.h"

namespace atom::ops::device::wide8 {

constexpr int kTileTokens = kMoeWideFloat8Tokens / 2, kTokenUnit = 16;

// Of an expert's rows: from `first` on two tiles of `units` times kTokenUnit.
struct PairShare {
  int first, units;
};

// An expert's pairs share its rows evenly, by whole units for both.
constexpr PairShare share_of(int pair, int rows) {
  constexpr int kUnit = 2 * kTokenUnit;
  const int num_pairs = (rows + 2 * kTileTokens - 1) / (2 * kTileTokens);
  const int units = (rows + kUnit - 1) / kUnit;
  const int each = units / num_pairs, more = units % num_pairs;
  return {kUnit * (pair * each + (pair < more ? pair : more)), each + (pair < more ? 1 : 0)};
}

// Whether shares follow each other to the last row, and none is more than two tiles or nothing.
constexpr bool shares_all(int rows) {
  int next = 0;
  for (int pair = 0; pair * 2 * kTileTokens < rows; ++pair) {
    const PairShare share = share_of(pair, rows);
    if (share.first != next || share.first >= rows) return false;
    if (share.units < 1 || share.units * kTokenUnit > kTileTokens) return false;
    next += 2 * share.units * kTokenUnit;
  }
  return next >= rows && next < rows + 2 * kTokenUnit;
}
static_assert(shares_all(1) && shares_all(32) && shares_all(33) && shares_all(256) &&
              shares_all(257) && shares_all(272) && shares_all(513) && shares_all(2049) &&
              shares_all(4000) && shares_all(65536));

}  // namespace atom::ops::device::wide8
