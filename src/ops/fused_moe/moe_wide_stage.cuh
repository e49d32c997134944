// Inside fused_moe by wide tiles on Hopper: shared memory and the order of tiles. The two blocks of
// a cluster have neighboring rows of the matrix and the same tokens.
#pragma once

#include <cuda.h>

#include "ops/fused_moe/moe_tiles.cuh"
#include "ops/fused_moe/moe_wide.h"
#include "ops/fused_moe/moe_wide_shares.h"

namespace atom::ops::device::wide {

constexpr int kTileFeatures = 128;  // rows of a matrix; with the activation half of them are gates
constexpr int kBoxTokens = kTokenUnit / 2;
constexpr int kPanelSize = 128;  // bytes of k
constexpr int kPanelElements = kPanelSize / 2;
constexpr int kPairRows = 8;  // gates, and then as many ups, of what a warp's products take
constexpr int kClusterSize = 2;
constexpr int kWarpgroupSize = 128;
constexpr int kNumConsumers = 2 * kWarpgroupSize, kNumThreads = kNumConsumers + kWarpgroupSize;
constexpr int kConsumerWarps = kNumConsumers / kWarpSize;
constexpr int kNumStages = 4;
constexpr int kMatrixSize = kTileFeatures * kPanelSize;
constexpr int kXSize = kTileTokens * kPanelSize;
constexpr int kStageSize = kMatrixSize + kXSize;
// Of a warp: outputs of some times 16 or 32 tokens on their way.
constexpr int kRowStride = 32 + 16;
constexpr int kOutputParts = 4, kOutputPartSize = 16 * kRowStride;
constexpr int kOutputSize = kOutputParts * kOutputPartSize;
static_assert(kWarpSize * 16 <= kOutputPartSize);
constexpr int kBarrierSize = 8;
constexpr int kOutputOffset = kNumStages * kStageSize;
constexpr int kBarriersOffset = kOutputOffset + kConsumerWarps * kOutputSize;
constexpr int kSharedSize = kBarriersOffset + 2 * kNumStages * kBarrierSize;

struct MoeWideArgs {
  CUtensorMap x;  // [rows, columns], boxes of 128 bytes of kBoxTokens rows
  // Boxes of 128 bytes of a tile's rows. With the activation [eights of outputs, gate and up, eight
  // outputs, columns], else [all experts' rows, columns].
  CUtensorMap matrices;
  FusedMoeGpuCall call;
  MoeManyScratch scratch;
  ExpertMatrices own;    // the same matrices
  int num_rows;          // of a matrix
  int num_outputs;       // of a row: those, or half of them
  int num_column_pairs;  // of tiles
  int num_chunks;        // of 128 bytes of k
};

class Shared {
 public:
  __device__ explicit Shared(uint8_t* memory) : base_(shared_address(memory)) {}

  __device__ uint32_t matrix(int stage) const { return base_ + stage * kStageSize; }
  __device__ uint32_t x(int stage) const { return matrix(stage) + kMatrixSize; }
  __device__ uint32_t output(int warp) const { return base_ + kOutputOffset + warp * kOutputSize; }
  __device__ uint32_t full(int stage) const {
    return base_ + kBarriersOffset + stage * kBarrierSize;
  }
  __device__ uint32_t empty(int stage) const { return full(kNumStages + stage); }

  // By one thread. Both blocks of the cluster copy to a stage when both have done with it.
  __device__ void init_barriers() const {
    for (int i = 0; i < kNumStages; ++i) {
      init_barrier(full(i), 1);
      init_barrier(empty(i), kClusterSize * kConsumerWarps);
    }
    publish_barriers();
  }

 private:
  const uint32_t base_;
};

// visit(tile) for all tiles of the block, by whole warps. end_row is the tile's.
template <typename Visit>
__device__ void for_tiles(const MoeWideArgs& args, Visit&& visit) {
  TileList list(args.scratch.shared, args.call.num_experts, args.num_column_pairs, kTileTokens);
  for (int i = blockIdx.x / kClusterSize; i < list.size(); i += gridDim.x / kClusterSize) {
    MoeTile tile = list.at(i);
    const int begin = list.row_begin_of(tile.expert);
    const RowShare share = share_of<kTileTokens, kTokenUnit>((tile.first_row - begin) / kTileTokens,
                                                             tile.end_row - begin);
    tile.first_row = begin + share.first;
    tile.end_row = begin + share.end;
    tile.column_tile = tile.column_tile * kClusterSize + cluster_rank();
    visit(tile);
  }
}

// In units of kTokenUnit; the compiler knows that a warp has one.
__device__ inline int token_units(const MoeTile& tile) {
  const int units = (tile.end_row - tile.first_row + kTokenUnit - 1) / kTokenUnit;
  return __shfl_sync(0xffffffffu, max(units, 1), 0);
}

}  // namespace atom::ops::device::wide
