// Inside fused_moe for few tokens by experts in FP8 on Hopper: the kernel. Eight warps multiply,
// the first four half of the rows of each half of a tile, two threads copy: one the matrices, which
// need nothing of the kernel before but the choices, the other what they are multiplied by; and a
// warp takes the tiles.
#pragma once

#include "ops/fused_moe/moe_skinny_items.cuh"
#include "ops/fused_moe/moe_skinny_output.cuh"

namespace atom::ops::device::moe_skinny {

template <int kColumns>
__device__ void multiply_items(const MoeSkinnyArgs& args, const Shared<kColumns>& shared) {
  StageCursor stage;
  for_items(shared, threadIdx.x % kWarpSize == 0, [&](const Item& item) {
    const Output<kColumns> output(args, shared, item);
    TileSums<kColumns> sums;
    sums.add_panels(shared, item.scales, args.matrices[item.matrix].num_panels, stage);
    output.store(sums);
    __syncwarp();
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
    for (int i = 0; i < kNumItems; ++i) {
      init_barrier(shared.item_full(i), 1);
      init_barrier(shared.item_empty(i), kConsumerWarps + 2);
    }
    publish_barriers();
  }
  // The choices are of a kernel before the one before, whose blocks have all waited for it.
  const int num_groups = make_groups<Limits>(args.call, shared);
  const int warp = threadIdx.x / kWarpSize;
  if (warp == kMatrixWarp) {
    if (is_elected()) {
      copy_matrices(args, shared);
      wait_for_previous_grid();
      allow_next_grid();
    }
  } else if (warp == kXWarp) {
    if (is_elected()) {
      wait_for_previous_grid();
      copy_x(args, shared);
    }
  } else if (warp == kItemWarp) {
    ItemTaker<kColumns>(args, shared, num_groups).run();
  } else {
    wait_for_previous_grid();
    multiply_items(args, shared);
  }
}

}  // namespace atom::ops::device::moe_skinny
