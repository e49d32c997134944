// Inside fused_moe by wide tiles in FP8 on Hopper: shared memory and the order of tiles. The two
// blocks of a cluster have the same rows of the matrix and neighboring tokens. Each warpgroup has
// half of the rows: with the activation 64 gates and their ups, else 128 rows, whose groups of
// eight are by turns of one product and of the other, so that those of a warp follow each other.
#pragma once

#include <cuda.h>

#include "ops/fused_moe/moe_tiles.cuh"
#include "ops/fused_moe/moe_wide_float8_shares.h"

namespace atom::ops::device::wide8 {

constexpr int kClusterSize = 2;
constexpr int kPanelSize = 128;  // bytes of k, as many codes, which share a scale
constexpr int kBlockRows = 128;  // of a matrix that share a scale
constexpr int kWarpgroupSize = 128;
constexpr int kNumConsumers = 2 * kWarpgroupSize, kNumThreads = kNumConsumers + kWarpgroupSize;
constexpr int kConsumerWarps = kNumConsumers / kWarpSize;
constexpr int kNumStages = 4;
constexpr int kProducts = 2, kProductRows = 64;  // of a warpgroup
constexpr int kPartSize = kProductRows * kPanelSize;
constexpr int kMatrixSize = 2 * kProducts * kPartSize;
constexpr int kUnitSize = kTokenUnit * kPanelSize;
constexpr int kStageSize = kMatrixSize + kTileTokens * kPanelSize;
constexpr int kScalesSize = 2 * kTileTokens * int{sizeof(float)};  // of a stage
// What outputs are on their way: with the activation a tile's codes, largest magnitudes of each
// warp's and what codes are multiplied by; else of each warp 8 tokens by 32 outputs, twice, and of
// each warpgroup its tokens' choices and weights.
constexpr int kCodeStride = kBlockRows + 16;
constexpr int kCodesSize = kTileTokens * kCodeStride;
constexpr int kLargestSize = kConsumerWarps * kTileTokens * int{sizeof(float)};
constexpr int kFactorsSize = kTileTokens * int{sizeof(float)};
constexpr int kResultStride = 64 + 16, kResultsSize = 2 * 8 * kResultStride;
constexpr int kChoicesSize = 2 * kTileTokens * int{sizeof(int32_t)};
constexpr int kOutputSize = kCodesSize + kLargestSize + kFactorsSize;
static_assert(kConsumerWarps * kResultsSize + 2 * kChoicesSize <= kOutputSize);
constexpr int kBarrierSize = 8;
constexpr int kScalesOffset = kNumStages * kStageSize;
constexpr int kOutputOffset = kScalesOffset + kNumStages * kScalesSize;
constexpr int kBarriersOffset = kOutputOffset + kOutputSize;
constexpr int kSharedSize = kBarriersOffset + 2 * kNumStages * kBarrierSize;

using RowScales = MoeRowScales;

struct MoeWideFloat8Args {
  // In boxes of 128 bytes of kTokenUnit rows, and of kProductRows of all experts' matrices.
  CUtensorMap x, matrices;
  FusedMoeGpuCall call;
  MoeFloat8Scratch scratch;
  ExpertMatrices own;     // the same matrices
  const float* x_scales;  // [num_chunks, rows_of_scales]
  int64_t rows_of_scales;
  int num_rows;     // of a matrix
  int num_outputs;  // of a row: those, or half of them
  int num_column_tiles;
  int num_chunks;  // of 128 of k
  RowScales scales;
};

class Shared {
 public:
  __device__ explicit Shared(uint8_t* memory) : base_(shared_address(memory)) {}

  __device__ uint32_t matrix(int stage) const { return base_ + stage * kStageSize; }
  __device__ uint32_t x(int stage) const { return matrix(stage) + kMatrixSize; }
  // Of tokens times those of one of two parts of the matrix.
  __device__ uint32_t scales(int stage) const {
    return base_ + kScalesOffset + stage * kScalesSize;
  }
  __device__ uint32_t output() const { return base_ + kOutputOffset; }
  __device__ uint32_t full(int stage) const {
    return base_ + kBarriersOffset + stage * kBarrierSize;
  }
  __device__ uint32_t empty(int stage) const { return full(kNumStages + stage); }

  // By one thread. Both blocks of the cluster copy to a stage when both have done with it.
  __device__ void init_barriers() const {
    for (int i = 0; i < kNumStages; ++i) {
      init_barrier(full(i), 2);  // by who copies x, and who copies scales
      init_barrier(empty(i), kClusterSize * kConsumerWarps);
    }
    publish_barriers();
  }

 private:
  const uint32_t base_;
};

struct Tile {
  int expert, column_tile;
  int first_row, end_row;  // in the order of experts: the tile's first, the expert's end
  int units;               // of tokens, for both blocks
};

// visit(tile) for all tiles of the block, by whole warps. A tile may have no rows.
template <typename Visit>
__device__ __forceinline__ void for_tiles(const MoeWideFloat8Args& args, Visit&& visit) {
  TileList list(args.scratch.shared,
                args.call.num_experts,
                args.num_column_tiles,
                kClusterSize * kTileTokens);
  for (int i = blockIdx.x / kClusterSize; i < list.size(); i += gridDim.x / kClusterSize) {
    const MoeTile tile = list.at(i);
    const int begin = list.row_begin_of(tile.expert);
    const PairShare share =
        share_of((tile.first_row - begin) / (kClusterSize * kTileTokens), tile.end_row - begin);
    // The compiler knows that a warp has one.
    const int units = __shfl_sync(0xffffffffu, share.units, 0);
    visit(Tile{.expert = tile.expert,
               .column_tile = tile.column_tile,
               .first_row = begin + share.first + cluster_rank() * units * kTokenUnit,
               .end_row = tile.end_row,
               .units = units});
  }
}

// The first row of the matrix that one of its two parts with a scale of their own has: gates and
// ups, or a half of the rows.
template <bool kGated>
__device__ inline int first_row_of(const MoeWideFloat8Args& args, const Tile& tile, int part) {
  return kGated ? part * (args.num_rows / 2) + tile.column_tile * kBlockRows
                : (tile.column_tile * 2 + part) * kBlockRows;
}

}  // namespace atom::ops::device::wide8
