// Inside fused_moe by whole tiles in FP8 on Hopper: shared memory and the order of tiles. A tile is
// 128 rows of tokens, 64 of each warpgroup, by two parts of 128 rows of the matrix: with the
// activation gates and their ups, else neighbors. The two blocks of a cluster have the same rows of
// the matrix and neighboring tokens.
#pragma once

#include <cuda.h>

#include "ops/fused_moe/moe_tiles.cuh"
#include "ops/fused_moe/moe_whole_float8.h"

namespace atom::ops::device::whole8 {

constexpr int kClusterSize = 2;
constexpr int kPanelSize = 128;             // bytes of k, as many codes, which share a scale
constexpr int kParts = 2, kPartRows = 128;  // of the matrix, each with a scale
constexpr int kWarpgroupSize = 128, kWarpgroupTokens = 64;
constexpr int kNumConsumers = 2 * kWarpgroupSize, kNumThreads = kNumConsumers + kWarpgroupSize;
constexpr int kConsumerWarps = kNumConsumers / kWarpSize;
constexpr int kTileTokens = 2 * kWarpgroupTokens;
static_assert(kClusterSize * kTileTokens == kMoeWholeFloat8Tokens);
constexpr int kPartSize = kPartRows * kPanelSize;
constexpr int kXSize = kWarpgroupTokens * kPanelSize;  // of a warpgroup
constexpr int kMatrixSize = kParts * kPartSize;
constexpr int kStageSize = kMatrixSize + 2 * kXSize;
constexpr int kNumStages = 4;
constexpr int kScalesSize = (kTileTokens + 4) * int{sizeof(float)};  // of a stage
// Without the activation: boxes of outputs on their way, two of each warp, 16 rows of 128 bytes.
constexpr int kBoxRows = 16, kBoxOutputs = 64, kBoxes = 2;
constexpr int kBoxSize = kBoxRows * kPanelSize;
constexpr int kBarrierSize = 8;
constexpr int kBoxesOffset = kNumStages * kStageSize;
constexpr int kScalesOffset = kBoxesOffset + kConsumerWarps * kBoxes * kBoxSize;
constexpr int kBarriersOffset = kScalesOffset + kNumStages * kScalesSize;
constexpr int kSharedSize = kBarriersOffset + 2 * kNumStages * kBarrierSize;
static_assert(kSharedSize <= 227 << 10);

// Columns of products are rows of the matrix in such an order that a thread's sums of 32 of them
// are eight that follow each other: in shared memory row 8 c + 2 q + b of 32 is row 8 q + 2 c + b.
constexpr int kOrderedRows = 32;

struct MoeWholeFloat8Args {
  // Of x in boxes of kWarpgroupTokens rows of 128 bytes; of all experts' matrices in boxes of
  // kPartRows, by the dimensions k, b, q, c and 32s of rows.
  CUtensorMap x, matrices;  // x without the activation
  CUtensorMap results;      // without the activation: [rows, num_outputs], in boxes of kBoxRows
  FusedMoeGpuCall call;
  MoeFloat8Scratch scratch;
  ExpertMatrices own;      // the same matrices
  const uint8_t* x_codes;  // with the activation: [tokens, num_columns]
  int x_stride;            // of its rows
  const float* x_scales;   // of chunks of tokens or of rows, so far apart
  int64_t chunk_step;
  int scale_step;
  int num_columns;
  int num_rows;     // of a matrix
  int num_outputs;  // of a row: those, or half of them
  int num_column_tiles;
  int num_chunks;  // of 128 of k
  MoeRowScales scales;
};

class Shared {
 public:
  __device__ explicit Shared(uint8_t* memory) : base_(shared_address(memory)) {}

  __device__ uint32_t matrix(int stage) const { return base_ + stage * kStageSize; }
  __device__ uint32_t x(int stage) const { return matrix(stage) + kMatrixSize; }
  // Of tokens, then of parts of the matrix.
  __device__ uint32_t scales(int stage) const {
    return base_ + kScalesOffset + stage * kScalesSize;
  }
  // Of a warp.
  __device__ uint32_t boxes() const {
    return base_ + kBoxesOffset + threadIdx.x / kWarpSize * (kBoxes * kBoxSize);
  }
  __device__ uint32_t full(int stage) const {
    return base_ + kBarriersOffset + stage * kBarrierSize;
  }
  __device__ uint32_t empty(int stage) const { return full(kNumStages + stage); }

  // By one thread. Both blocks of the cluster copy to a stage when both have done with it; so many
  // warps copy x.
  __device__ void init_barriers(int num_x_warps) const {
    for (int i = 0; i < kNumStages; ++i) {
      init_barrier(full(i), 2 + num_x_warps);  // and who copies the matrix, and scales
      init_barrier(empty(i), kClusterSize * kConsumerWarps);
    }
    publish_barriers();
  }

 private:
  const uint32_t base_;
};

struct Tile {
  int expert, column_tile;
  int first_row, end_row;  // in the order of experts: the block's first, the expert's end
};

// visit(tile) for all tiles of the block, by whole warps. A tile may have no rows.
template <typename Visit>
__device__ __forceinline__ void for_tiles(const MoeWholeFloat8Args& args, Visit&& visit) {
  TileList list(
      args.scratch.shared, args.call.num_experts, args.num_column_tiles, kMoeWholeFloat8Tokens);
  const int rank = cluster_rank();
  for (int i = blockIdx.x / kClusterSize; i < list.size(); i += gridDim.x / kClusterSize) {
    const MoeTile tile = list.at(i);
    visit(Tile{.expert = tile.expert,
               .column_tile = tile.column_tile,
               .first_row = tile.first_row + rank * kTileTokens,
               .end_row = tile.end_row});
  }
}

// The first row of the matrix that a part has.
template <bool kGated>
__device__ inline int first_row_of(const MoeWholeFloat8Args& args, const Tile& tile, int part) {
  return kGated ? part * (args.num_rows / 2) + tile.column_tile * kPartRows
                : (tile.column_tile * kParts + part) * kPartRows;
}

}  // namespace atom::ops::device::whole8
