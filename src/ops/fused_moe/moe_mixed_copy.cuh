// Inside fused_moe by MXFP4 and FP8: the thread that copies.
#pragma once

#include "ops/fused_moe/moe_mixed_stage.cuh"

namespace atom::ops::device::mixed {

// By a warp, of which one lane copies.
template <bool kGated>
__device__ void copy_tiles(const MoeMixedArgs& args, const Shared<kGated>& shared) {
  const uint64_t policy = keep_policy();
  const bool copies = is_elected();
  StageCursor stage;
  for_tiles(args, [&](const Tile& tile) {
    if (!copies) return;
    const int matrix_row = tile.expert * args.num_rows + tile.first_matrix_row;
    const int units = token_units(tile);
    for (int chunk = 0; chunk < args.num_chunks; ++chunk) {
      const uint32_t full = shared.full(stage.index);
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      arrive_expecting(full, kMatrixSize + units * kUnitBytes);
      copy_box(
          shared.matrix(stage.index), &args.matrices, chunk * kRowSize, matrix_row, full, policy);
      for (int unit = 0; unit < units; ++unit) {
        copy_box(shared.x(stage.index) + unit * kUnitBytes,
                 &args.x,
                 chunk * kTokenSize,
                 tile.first_row + unit * kUnitTokens,
                 full,
                 policy);
      }
      stage.advance(Shared<kGated>::kStages);
    }
  });
}

}  // namespace atom::ops::device::mixed
