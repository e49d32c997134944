// Inside fused_moe by terms in FP8: the sizes of tiles, stages and shared memory.
#pragma once

#include <cuda.h>

#include "ops/fused_moe/expert_image_format.h"
#include "ops/fused_moe/moe_row_shares.h"
#include "ops/fused_moe/moe_stream_math.cuh"
#include "ops/fused_moe/moe_terms.h"
#include "ops/fused_moe/moe_tiles.cuh"

namespace atom::ops::device::terms {

constexpr int kGroups = 2;  // warpgroups that multiply, each some of a tile's rows
constexpr int kWarpgroupSize = 128, kGroupWarps = kWarpgroupSize / kWarpSize;
constexpr int kNumConsumers = kGroups * kWarpgroupSize, kConsumerWarps = kNumConsumers / kWarpSize;
constexpr int kThreads = kNumConsumers + kWarpSize;
constexpr int kBlocksAtOnce = 2;  // on a multiprocessor

// A tile has so many rows of a matrix; with the activation half of them gates, and their ups.
constexpr int kTileRows = 64 * kGroups, kHalfRows = kTileRows / 2;
constexpr int kUnit8 = 8;  // tokens that a product takes at least
static_assert(shares_all_sizes<16, kUnit8>());

// A stage has so many columns: eight blocks of 32, which share an exponent in a row.
constexpr int kChunkColumns = 256, kRowSize = kChunkColumns / 2;
constexpr int kChunkBlocks = kChunkColumns / kExponentColumns;
constexpr int kMatrixSize = kTileRows * kRowSize;
// Of images, which take the same bytes, each half has a run.
constexpr int kChunkImages = kChunkColumns / kImageColumns, kRunSize = kChunkImages * kImageSize;
static_assert(kHalfRows == kImageRows && 2 * kRunSize == kMatrixSize);
// Of x a copy has 128 columns of eight tokens, their high terms and then the low ones.
constexpr int kPanelColumns = 128, kPanels = kChunkColumns / kPanelColumns, kTerms = 2;
constexpr int kTermSize = kUnit8 * kPanelColumns, kUnitSize = kTerms * kTermSize;
constexpr int kScalesRowSize = kChunkBlocks * sizeof(float);  // of a token

// Blocks of a step, the products of which run while codes of the next one are expanded.
constexpr int kStepBlocks = 2, kChunkSteps = kChunkBlocks / kStepBlocks;
static_assert(kStepBlocks == kImageBlocks);

constexpr int kMaxStages = 16;
constexpr int kExponentBuffers = 2;
constexpr int kBarriersSize = 512;
constexpr int kMaximaSize = 2 * kConsumerWarps * 16 * 4;  // of outputs of a warp, twice
constexpr int kSharedSize = 113 << 10;

template <int kTokens>
constexpr int kScalesSize = kTokens* kScalesRowSize;
template <int kTokens, bool kGated>
constexpr int kStageSize = (kMatrixSize + kPanels * kTokens / kUnit8 * kUnitSize +
                            (kGated ? 0 : kScalesSize<kTokens>)+1023) /
                           1024 * 1024;

struct MoeTermsArgs {
  CUtensorMap x;         // [2 terms][rows][columns], boxes of both of 128 bytes of eight tokens
  CUtensorMap x_scales;  // [rows][groups], boxes of a chunk's of eight tokens; without activation
  CUtensorMap matrices;  // [all experts' rows, columns / 2 bytes], boxes of a tile, or of half a
                         // one; none of images
  FusedMoeGpuCall call;
  MoeTermsScratch scratch;
  ExpertMatrices own;  // the same matrices
  int num_rows;        // of a matrix
  int num_outputs;     // of a row: those, or half of them
  int num_column_tiles;
  int num_chunks;
  int last_steps;     // of the last one, which may have fewer columns
  int row_exponents;  // bytes
  int row_images;     // that follow each other along columns
  int num_stages;
  int exponents_size;  // of a tile, in shared memory

  __device__ const FusedMoeGpuScratch& tiles() const { return scratch.shared; }
};

// Lanes read those of the last chunk, of which a row may have fewer.
constexpr int exponents_size_of(int num_columns) {
  return (kTileRows * (num_columns / kExponentColumns) + 16 + 127) / 128 * 128;
}
constexpr int kMostExponents = 16 << 10;

// Bytes of shared memory besides stages.
__host__ __device__ inline int fixed_size(int exponents_size) {
  return kBarriersSize + kMaximaSize + kExponentBuffers * exponents_size;
}

}  // namespace atom::ops::device::terms
