// Inside fused_moe by rows of matrices on Hopper: the sizes of tiles, stages and shared memory.
#pragma once

#include <cuda.h>

#include "ops/fused_moe/expert_image_format.h"
#include "ops/fused_moe/moe_rows_format.cuh"
#include "ops/fused_moe/moe_tiles.cuh"

namespace atom::ops::device::rows {

constexpr int kPanelSize = 128;  // bytes of a row of x in a copy
constexpr int kWarpgroupSize = 128;
template <typename W>
constexpr int kNumConsumers = Chunk<W>::kGroups* kWarpgroupSize;
template <typename W>
constexpr int kConsumerWarps = kNumConsumers<W> / kWarpSize;
constexpr int kMaxStages = 24;
constexpr int kExponentBuffers = 2;
constexpr int kBarriersSize = 512;
constexpr int kPairRows = 8;  // gates, and then as many ups, of what the matrix units take at once
// Of a warp: outputs of 16 tokens, or of 8, on their way.
constexpr int kGatedRowStride = 32 + 16, kRowStride = 64 + 16;
constexpr int kOutputSize = 16 * kGatedRowStride;
static_assert(8 * kRowStride <= kOutputSize);

struct MoeRowsArgs {
  CUtensorMap x;         // [rows, padded columns], boxes of 128 bytes of a tile's tokens
  CUtensorMap matrices;  // [all experts' rows, columns], boxes of a chunk of some rows; none of
                         // images
  FusedMoeGpuCall call;
  MoeRowsScratch scratch;
  ExpertMatrices own;  // the same matrices
  int num_rows;        // of a matrix
  int num_outputs;     // of a row: those, or half of them
  int activated_width;
  int num_column_tiles;
  int num_chunks;
  int row_exponents;  // bytes
  int row_images;     // that follow each other along columns
  int num_stages;
  int exponents_size;  // of a tile, in shared memory

  __device__ const FusedMoeGpuScratch& tiles() const { return scratch.shared; }
};

// Of a matrix; with the activation half of them gates and the others their ups.
template <typename W>
constexpr int kTileRows = 64 * Chunk<W>::kBlocks* Chunk<W>::kGroups;
template <typename W>
constexpr int kHalfRows = kTileRows<W> / 2;
template <typename W>
constexpr int kMatrixSize = kTileRows<W>* Chunk<W>::kRowSize;
template <typename W>
constexpr int kPanels = Chunk<W>::kColumns * 2 / kPanelSize;
// Of images, which take the same bytes, a chunk has runs of two for each 64 rows.
template <typename W>
constexpr int kChunkImages = Chunk<W>::kColumns / kImageColumns;
template <typename W>
constexpr int kRunSize = kChunkImages<W>* kImageSize;
template <typename W>
constexpr int kRuns = kTileRows<W> / kImageRows;
template <typename W, int kTokens>
constexpr int kStageSize = kMatrixSize<W> + kTokens* kPanels<W>* kPanelSize;

// Tokens of the largest tile. Float4's sums of so many fill registers; of the others there are
// kernels for many tokens.
template <typename W>
constexpr int kMostTokens = Chunk<W>::kEarly              ? 8
                            : Chunk<W>::kGroups > 2       ? 64
                            : RowFormat<W>::kHasExponents ? 128
                                                          : 64;
// And of the smallest: of fewer QuarterFloat4 makes sums.
template <typename W>
constexpr int kLeastTokens = kMostTokens<W> == 128 ? 96 : 8;

// Of a tile in MXFP4. Lanes read four of the last chunk, of which a row may have fewer.
template <typename W>
constexpr int exponents_size(int num_columns) {
  return (kTileRows<W> * (num_columns / kExponentColumns) + 16 + 127) / 128 * 128;
}
constexpr int kMostExponents = 32 << 10;

// Whether two blocks share a multiprocessor, so that the second matrix's copies begin while the
// first one is multiplied: where few registers do.
template <typename W, int kTokens>
constexpr bool kIsSmall = !Chunk<W>::kFromRegisters && kTokens <= 32;

template <typename W>
constexpr int kThreadsOf = kNumConsumers<W> + kWarpgroupSize;

// Of a warp, on their way to be stored by whole vectors.
template <typename W>
constexpr int kOutputSizeOf = Chunk<W>::kGroups > 2 ? 0 : kOutputSize;

// Bytes of shared memory besides stages.
template <typename W>
__host__ __device__ inline int fixed_size(int exponents_size) {
  return kBarriersSize + kConsumerWarps<W> * kOutputSizeOf<W> + kExponentBuffers * exponents_size;
}

}  // namespace atom::ops::device::rows
