// Inside fused_moe by wide tiles: which rows of an expert a tile has.
#pragma once

#include "ops/fused_moe/moe_row_shares.h"

namespace atom::ops::device::wide {

constexpr int kTileTokens = 256, kTokenUnit = 32;
static_assert(shares_all_sizes<kTileTokens, kTokenUnit>());

}  // namespace atom::ops::device::wide
