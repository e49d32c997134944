// Inside fused_moe by whole tiles in FP8 on Hopper: the threads that copy rows of a matrix and of
// tokens to the stages. Of the matrix each of a cluster's blocks copies a part to both.
#pragma once

#include "ops/fused_moe/moe_whole_float8_stage.cuh"

namespace atom::ops::device::whole8 {

// Rows of the matrix in the order of their dimensions (see kOrderedRows).
__device__ inline void copy_part_to_all(uint32_t target,
                                        const CUtensorMap* map,
                                        int column,
                                        int first_row,
                                        uint32_t barrier,
                                        uint16_t blocks,
                                        uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4, %4, %4, %5}], [%2], %6, %7;" ::"r"(
          target),
      "l"(map),
      "r"(barrier),
      "r"(column),
      "r"(0),
      "r"(first_row / kOrderedRows),
      "h"(blocks),
      "l"(policy)
      : "memory");
}

// By a warp, of which one lane copies: the part whose number is the block's.
template <bool kGated>
__device__ void copy_matrices(const MoeWholeFloat8Args& args, const Shared& shared) {
  constexpr uint16_t kBothBlocks = 3;
  const uint64_t policy = keep_policy();
  const bool copies = is_elected();
  const int rank = cluster_rank();
  StageCursor stage;
  for_tiles(args, [&](const Tile& tile) {
    if (!copies) return;
    const int first_row = tile.expert * args.num_rows + first_row_of<kGated>(args, tile, rank);
    for (int chunk = 0; chunk < args.num_chunks; ++chunk) {
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      arrive_expecting(shared.full(stage.index), kMatrixSize);
      copy_part_to_all(shared.matrix(stage.index) + rank * kPartSize,
                       &args.matrices,
                       chunk * kPanelSize,
                       first_row,
                       shared.full(stage.index),
                       kBothBlocks,
                       policy);
      stage.advance(kNumStages);
    }
  });
}

// By another: the rows of this block, of those warpgroups that have any.
inline __device__ void copy_x(const MoeWholeFloat8Args& args, const Shared& shared) {
  const uint64_t policy = keep_policy();
  const bool copies = is_elected();
  StageCursor stage;
  for_tiles(args, [&](const Tile& tile) {
    if (!copies) return;
    const int rows = tile.end_row - tile.first_row;
    const int boxes = rows <= 0 ? 0 : rows <= kWarpgroupTokens ? 1 : 2;
    for (int chunk = 0; chunk < args.num_chunks; ++chunk) {
      const uint32_t full = shared.full(stage.index), target = shared.x(stage.index);
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      arrive_expecting(full, boxes * kXSize);
      for (int i = 0; i < boxes; ++i) {
        copy_box(target + i * kXSize,
                 &args.x,
                 chunk * kPanelSize,
                 tile.first_row + i * kWarpgroupTokens,
                 full,
                 policy);
      }
      stage.advance(kNumStages);
    }
  });
}

}  // namespace atom::ops::device::whole8
