// Inside fused_moe for few tokens by experts in FP8 on Hopper: the kernel. Eight warps multiply,
// the first four half of the rows of each half of a tile, and two threads copy: one the matrices,
// which need nothing of the kernel before but the choices, the other what they are multiplied by.
#pragma once

#include "ops/fused_moe/moe_skinny_output.cuh"

namespace atom::ops::device::moe_skinny {

template <int kColumns>
__device__ void multiply_items(const MoeSkinnyArgs& args,
                               const Shared<kColumns>& shared,
                               int num_groups) {
  StageCursor stage;
  for_items(args, num_groups, [&](const Item& item) {
    const MatrixArgs& matrix = args.matrices[item.matrix];
    const BlockScales scales(matrix, shared.groups()[item.group].expert, item.tile);
    const Output<kColumns> output(args, shared, item);
    TileSums<kColumns> sums;
    sums.add_panels(shared, scales, matrix.num_panels, stage);
    output.store(sums);
  });
}

template <int kColumns, typename Limits>
__global__ void __launch_bounds__(kThreads, 1)
    moe_skinny_matrices(const __grid_constant__ MoeSkinnyArgs args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared<kColumns> shared(memory);
  if (threadIdx.x == 0) {
    for (const MatrixArgs& matrix : args.matrices) {
      prefetch_map(&matrix.matrices);
      prefetch_map(&matrix.x);
    }
    for (int i = 0; i < Shared<kColumns>::kNumStages; ++i) {
      init_barrier(shared.full(i), 2);
      init_barrier(shared.empty(i), kConsumerWarps);
    }
    publish_barriers();
  }
  // The choices are of a kernel before the one before, whose blocks have all waited for it.
  const int num_groups = make_groups<Limits>(args.call, shared);
  const int warp = threadIdx.x / kWarpSize;
  if (warp == kMatrixWarp) {
    if (is_elected()) {
      copy_matrices(args, shared, num_groups);
      wait_for_previous_grid();
      allow_next_grid();
    }
  } else if (warp == kXWarp) {
    if (is_elected()) {
      wait_for_previous_grid();
      copy_x(args, shared, num_groups);
    }
  } else {
    wait_for_previous_grid();
    multiply_items(args, shared, num_groups);
  }
}

}  // namespace atom::ops::device::moe_skinny
