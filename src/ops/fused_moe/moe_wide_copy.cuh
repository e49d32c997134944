// Inside fused_moe by wide tiles on Hopper: the threads that copy rows of a matrix and tokens to
// the stages. Of the tokens each of a cluster's blocks copies a half to both.
#pragma once

#include "ops/fused_moe/moe_wide_stage.cuh"

namespace atom::ops::device::wide {

__device__ inline void copy_box(uint32_t target,
                                const CUtensorMap* map,
                                const int (&at)[4],
                                uint32_t barrier,
                                uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(target),
      "l"(map),
      "r"(barrier),
      "r"(at[0]),
      "r"(at[1]),
      "r"(at[2]),
      "r"(at[3]),
      "l"(policy)
      : "memory");
}

// By a warp, of which one lane copies: the matrix.
template <bool kGated>
__device__ void copy_matrices(const MoeWideArgs& args, const Shared& shared) {
  const uint64_t policy = keep_policy();
  const bool copies = is_elected();
  constexpr int kOutputs = kTileFeatures / 2;
  StageCursor stage;
  for_tiles(args, [&](const MoeTile& tile) {
    if (!copies) return;
    const int eights_of_expert =
        args.num_rows / (args.call.activation.is_interleaved ? 2 * kPairRows : kPairRows);
    const int eight = tile.expert * eights_of_expert + tile.column_tile * (kOutputs / kPairRows);
    const int row = tile.expert * args.num_rows + tile.column_tile * kTileFeatures;
    for (int chunk = 0; chunk < args.num_chunks; ++chunk) {
      const uint32_t full = shared.full(stage.index), target = shared.matrix(stage.index);
      const int column = chunk * kPanelElements;
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      if constexpr (kGated) {
        copy_box(target, &args.matrices, {column, 0, 0, eight}, full, policy);
      } else {
        device::copy_box(target, &args.matrices, column, row, full, policy);
      }
      stage.advance(kNumStages);
    }
  });
}

// By another: this block's half of the tokens, to both.
inline __device__ void copy_x(const MoeWideArgs& args, const Shared& shared) {
  constexpr uint16_t kBothBlocks = 3;
  const uint64_t policy = keep_policy();
  const bool copies = is_elected();
  const int rank = cluster_rank();
  StageCursor stage;
  for_tiles(args, [&](const MoeTile& tile) {
    const int num_boxes = token_units(tile), first = rank * num_boxes * kBoxTokens;
    if (!copies) return;
    for (int chunk = 0; chunk < args.num_chunks; ++chunk) {
      const uint32_t full = shared.full(stage.index);
      const uint32_t target = shared.x(stage.index) + first * kPanelSize;
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      arrive_expecting(full, kMatrixSize + num_boxes * kTokenUnit * kPanelSize);
      for (int i = 0; i < num_boxes; ++i) {
        copy_box_to_all(target + i * kBoxTokens * kPanelSize,
                        &args.x,
                        chunk * kPanelElements,
                        tile.first_row + first + i * kBoxTokens,
                        full,
                        kBothBlocks,
                        policy);
      }
      stage.advance(kNumStages);
    }
  });
}

}  // namespace atom::ops::device::wide
