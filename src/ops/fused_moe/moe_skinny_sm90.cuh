// Inside fused_moe for few tokens by experts in FP8 on Hopper: the kernel. Eight warps quantize x and
// multiply, the first four half of the rows of each half of a tile, two threads copy: one the
// matrices, which need nothing but the choices, the other what they are multiplied by; and a warp
// takes the tiles.
#pragma once

#include "ops/fused_moe/moe_skinny_items.cuh"
#include "ops/fused_moe/moe_skinny_output.cuh"
#include "ops/fused_moe/moe_skinny_rows.cuh"

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
  wait_for_previous_grid();
  const Plan<Limits> plan(args.call, shared.template plan<Limits>(), kColumns);
  const TokenRow row(args.call, blockIdx.x);
  const int num_groups = make_groups(plan, shared);
  __syncthreads();
  find_rows(args.call, plan, shared.first_rows(), shared.rows());
  fence_before_copies();
  __syncthreads();
  const int warp = threadIdx.x / kWarpSize;
  if (warp == kMatrixWarp) {
    if (is_elected()) {
      copy_matrices(args, shared);
      allow_next_grid();
    }
  } else if (warp == kXWarp) {
    if (is_elected()) copy_x(args, shared);
  } else if (warp == kItemWarp) {
    ItemTaker<kColumns>(args, shared, num_groups).run();
  } else {
    publish_rows(args.call, args.scratch, row, shared.rows());
    if (threadIdx.x % kWarpSize == 0) wait_for_count(args, kRowsReady, args.call.num_tokens);
    __syncwarp();
    multiply_items(args, shared);
  }
}

}  // namespace atom::ops::device::moe_skinny
