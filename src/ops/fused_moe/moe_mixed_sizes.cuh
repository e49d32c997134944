// Inside fused_moe by MXFP4 and FP8: the sizes of tiles, stages and shared memory.
#pragma once

#include <cuda.h>

#include "ops/fused_moe/moe_mixed.h"
#include "ops/fused_moe/moe_row_shares.h"
#include "ops/fused_moe/moe_tiles.cuh"

namespace atom::ops::device::mixed {

constexpr int kGroups = 2, kGroupRows = 64;  // warpgroups that multiply, and their rows of a tile
constexpr int kWarpgroupSize = 128;
constexpr int kNumConsumers = kGroups * kWarpgroupSize, kConsumerWarps = kNumConsumers / kWarpSize;
constexpr int kThreads = kNumConsumers + kWarpgroupSize;
constexpr int kTileRows = kGroups * kGroupRows;

// A stage has 128 columns, which share a scale of a token: four blocks, each of which has an
// exponent of a row.
constexpr int kChunkColumns = kMoeMixedGroup, kChunkBlocks = kChunkColumns / kExponentColumns;
constexpr int kRowSize = kChunkColumns / 2;  // bytes of a matrix's row
constexpr int kMatrixSize = kTileRows * kRowSize;

// A tile has up to so many tokens, in whole units, of which each is a copy.
constexpr int kTokens = 176, kUnitTokens = 16, kTokenSize = kChunkColumns;
constexpr int kUnitBytes = kUnitTokens * kTokenSize;
static_assert(shares_all_sizes<kTokens, kUnitTokens>());
constexpr int kStageSize = kMatrixSize + kTokens * kTokenSize;
constexpr int kScalesSize = (kTokens * int{sizeof(float)} + 127) / 128 * 128;

// Of what is 2^-n of a row's largest exponent there is a table of codes, up to the n whose codes
// are all zeros.
constexpr int kNumTables = 20, kTableSize = 8;
// Where the tables of a tile's blocks begin, a byte each.
constexpr int kMostColumns = 3072;
constexpr int kPlacesRowSize = (kMostColumns / kChunkColumns + 1) * kChunkBlocks;
constexpr int kPlacesSize = kTileRows * kPlacesRowSize, kPlaceBuffers = 2;
constexpr int kExponentWarps = 2;
static_assert(kPlacesRowSize / 4 % 2 == 1, "eight rows are in different banks");

constexpr int kMaxStages = 8;
constexpr int kBarriersSize = 256;
constexpr int kTablesSize = 256;
constexpr int kUnitsSize = kTileRows * int{sizeof(float)};
constexpr int kSharedSize = 227 << 10;

// Of a warpgroup's outputs on their way.
template <bool kGated>
constexpr int kOutputSize = kTokens*(kGated ? kGroupRows : 2 * kGroupRows);
template <bool kGated>
constexpr int kFixedSize = kTablesSize + kBarriersSize +
                           kPlaceBuffers*(kPlacesSize + kUnitsSize) + kGroups* kOutputSize<kGated>;
template <bool kGated>
constexpr int kNumStages = (kSharedSize - kFixedSize<kGated>) / (kStageSize + kScalesSize);

struct MoeMixedArgs {
  CUtensorMap x;         // [rows, columns], boxes of a unit of tokens by a chunk
  CUtensorMap matrices;  // [all experts' rows, columns / 2 bytes], boxes of a tile by a chunk
  FusedMoeGpuCall call;
  MoeMixedScratch scratch;
  ExpertMatrices own;  // the same matrices
  int num_rows;        // of a matrix
  int num_outputs;     // of a row: those, or half of them
  int num_column_tiles;
  int num_groups;       // of scales of a token
  int num_chunks;       // odd; the last ones may have no columns
  bool ends_with_half;  // the last one has no columns in its second half
  int row_exponents;    // bytes
};

}  // namespace atom::ops::device::mixed
