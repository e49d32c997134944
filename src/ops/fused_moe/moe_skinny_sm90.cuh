// Inside fused_moe for few tokens by experts in FP8 on Hopper: the kernel. Eight warps multiply,
// the first four half of the rows of each half of a tile, and two threads copy: one the matrices,
// which need nothing but the choices, the other what they are multiplied by, when it is there.
#pragma once

#include "ops/fused_moe/moe_skinny_rows.cuh"

namespace atom::ops::device::moe_skinny {

template <int kColumns, bool kResident>
__device__ void multiply_items(const MoeSkinnyArgs& args,
                               const Shared<kColumns, kResident>& shared,
                               int num_groups) {
  StageCursor stage;
  for_items(args, num_groups, [&](const Item& item) {
    const MatrixArgs& matrix = args.matrices[item.matrix];
    const BlockScales scales(matrix, shared.groups()[item.group].expert, item.tile);
    const Output<kColumns, kResident> output(args, shared, item);
    TileSums<kColumns, kResident> sums;
    sums.add_panels(shared, scales, kResident && item.matrix == 0, matrix.num_panels, stage);
    output.store(sums);
  });
}

template <int kColumns, bool kResident>
__global__ void __launch_bounds__(kThreads, 1)
    moe_skinny_matrices(const __grid_constant__ MoeSkinnyArgs args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared<kColumns, kResident> shared(memory);
  if (threadIdx.x == 0) {
    for (const MatrixArgs& matrix : args.matrices) {
      prefetch_map(&matrix.matrices);
      prefetch_map(&matrix.x);
    }
    for (int i = 0; i < Shared<kColumns, kResident>::kNumStages; ++i) {
      init_barrier(shared.full(i), 2);
      init_barrier(shared.empty(i), kConsumerWarps);
    }
    publish_barriers();
  }
  wait_for_previous_grid();
  const int warp = threadIdx.x / kWarpSize;
  OwnCodes<kResident> codes;
  const int first_token = kResident ? 0 : blockIdx.x;
  if (warp < kConsumerWarps && first_token < args.call.num_tokens) {
    codes.load(args.call, first_token);
  }
  const int num_groups = make_groups(args.call, shared);
  if (warp == kMatrixWarp) {
    if (is_elected()) {
      copy_matrices(args, shared, num_groups);
      allow_next_grid();
    }
  } else if (warp == kXWarp) {
    if (is_elected()) copy_x(args, shared, num_groups);
  } else {
    if constexpr (kResident) {
      make_columns(args, shared, codes);
    } else {
      make_rows(args, shared, codes);
    }
    multiply_items(args, shared, num_groups);
  }
}

}  // namespace atom::ops::device::moe_skinny
