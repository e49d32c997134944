// Inside fused_moe for many tokens on Hopper: shared memory, the order of tiles, and the thread
// that copies rows of x and of the matrices to the stages.
#pragma once

#include <cuda.h>

#include "ops/device/async_copy.cuh"
#include "ops/device/matrix_units.cuh"
#include "ops/fused_moe/moe_device.cuh"
#include "ops/fused_moe/moe_wgmma.h"

namespace atom::ops::device::moe {

constexpr int kTileColumns = 256;
constexpr int kPanelSize = 128;  // bytes of k
constexpr int kPanelElements = kPanelSize / 2;
constexpr int kWarpgroupSize = 128, kWarpgroupRows = 64;
constexpr int kNumConsumers = 2 * kWarpgroupSize, kNumThreads = kNumConsumers + kWarpgroupSize;
constexpr int kConsumerWarps = kNumConsumers / kWarpSize;
constexpr int kNumStages = 4;
constexpr int kXSize = kMoeTileRows * kPanelSize;
constexpr int kHalfSize = kTileColumns / 2 * kPanelSize;  // of the matrix's part
constexpr int kStageSize = kXSize + 2 * kHalfSize;
// Rows of a result on their way: eight of each consumer's warp, which begin in different banks.
constexpr int kRowsAtOnce = 8;
constexpr int kRowStride = kTileColumns * 2 + 16;
constexpr int kRowsSize = kRowsAtOnce * kRowStride;
constexpr int kBarrierSize = 8;
constexpr int kRowsOffset = kNumStages * kStageSize;
constexpr int kBarriersOffset = kRowsOffset + kConsumerWarps * kRowsSize;
constexpr int kSharedSize = kBarriersOffset + 2 * kNumStages * kBarrierSize;

struct MoeWgmmaArgs {
  // In boxes of 128 bytes of a tile's rows, and of half a tile's rows of all experts' matrices.
  CUtensorMap x, matrices;
  FusedMoeGpuCall call;
  MoeWgmmaScratch scratch;
  ExpertMatrices own;  // the same matrices
  int num_rows;        // of a matrix
  int num_outputs;     // of a row: those, or half of them
  int num_column_tiles;
  int num_chunks;  // of 128 bytes of k
};

// A tile of an expert's rows by some of its matrix's.
struct MoeTile {
  int expert, column_tile;
  int first_row, end_row;  // in the order of experts: the tile's first, the expert's end
};

// visit(tile) for all tiles of the block. The tiles of an expert's rows that meet the same rows of
// its matrix follow each other.
template <typename Visit>
__device__ void for_tiles(const MoeWgmmaArgs& args, Visit&& visit) {
  const int32_t* tile_begins = args.scratch.shared.tile_begins;
  const int32_t* row_begins = args.scratch.shared.row_begins;
  const int num_experts = args.call.num_experts;
  const int num_tiles = gpu_load_from_l2(tile_begins + num_experts) * args.num_column_tiles;
  int expert = 0, begin = 0, end = 0;
  for (int i = blockIdx.x; i < num_tiles; i += gridDim.x) {
    while (i >= end * args.num_column_tiles) {
      begin = end;
      end = gpu_load_from_l2(tile_begins + ++expert);
    }
    const int local = i - begin * args.num_column_tiles, num_row_tiles = end - begin;
    const int row_tile = local % num_row_tiles;
    visit(MoeTile{.expert = expert - 1,
                  .column_tile = local / num_row_tiles,
                  .first_row = gpu_load_from_l2(row_begins + expert - 1) + row_tile * kMoeTileRows,
                  .end_row = gpu_load_from_l2(row_begins + expert)});
  }
}

class Shared {
 public:
  __device__ explicit Shared(uint8_t* memory) : memory_(memory), base_(shared_address(memory)) {}

  __device__ uint32_t x(int stage) const { return base_ + stage * kStageSize; }
  __device__ uint32_t matrix(int stage) const { return x(stage) + kXSize; }
  __device__ uint32_t full(int stage) const {
    return base_ + kBarriersOffset + stage * kBarrierSize;
  }
  __device__ uint32_t empty(int stage) const { return full(kNumStages + stage); }
  __device__ uint8_t* rows(int warp) const { return memory_ + kRowsOffset + warp * kRowsSize; }

 private:
  uint8_t* const memory_;
  const uint32_t base_;
};

// By one thread.
template <bool kGated>
__device__ void copy_tiles(const MoeWgmmaArgs& args, const Shared& shared) {
  const uint64_t policy = keep_policy();
  const bool halves_apart = kGated && !args.call.activation.is_interleaved;
  const int step = halves_apart ? kTileColumns / 2 : kTileColumns;
  const int to_second = halves_apart ? args.num_rows / 2 : kTileColumns / 2;
  StageCursor stage;
  for_tiles(args, [&](const MoeTile& tile) {
    const int row = tile.expert * args.num_rows + tile.column_tile * step;
    for (int chunk = 0; chunk < args.num_chunks; ++chunk) {
      const uint32_t full = shared.full(stage.index);
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      arrive_expecting(full, kStageSize);
      const int column = chunk * kPanelElements;
      const uint32_t matrix = shared.matrix(stage.index);
      copy_box(shared.x(stage.index), &args.x, column, tile.first_row, full, policy);
      copy_box(matrix, &args.matrices, column, row, full, policy);
      copy_box(matrix + kHalfSize, &args.matrices, column, row + to_second, full, policy);
      stage.advance(kNumStages);
    }
  });
}

__device__ inline void store_matrices(uint32_t address, const uint32_t (&matrices)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(matrices[0]),
               "r"(matrices[1]),
               "r"(matrices[2]),
               "r"(matrices[3])
               : "memory");
}

}  // namespace atom::ops::device::moe
