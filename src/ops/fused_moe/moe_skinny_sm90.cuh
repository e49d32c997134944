// Inside fused_moe for few tokens by experts in FP8 on Hopper: the kernel. Eight warps quantize x,
// unless it comes in codes, and multiply; four have a thread or all for what shall not wait for
// them: copying matrices, copying what they are multiplied by, taking tiles, and telling other
// blocks of those that are done.
#pragma once

#include <type_traits>

#include "ops/fused_moe/moe_skinny_items.cuh"
#include "ops/fused_moe/moe_skinny_output.cuh"
#include "ops/fused_moe/moe_skinny_rows.cuh"
#include "ops/fused_moe/moe_skinny_tokens.cuh"

namespace atom::ops::device::moe_skinny {

template <bool kHasCodes, int kColumns>
__device__ void multiply_items(const MoeSkinnyArgs& args, const Shared<kColumns>& shared) {
  const bool is_first_lane = threadIdx.x % kWarpSize == 0;
  StageCursor stage, x_stage;
  for_items<true>(shared, is_first_lane, [&](const Item& item, const StageCursor& slot) {
    const Output<kColumns, kHasCodes> output(args, shared, item);
    TileSums<kColumns> sums;
    sums.add_tile(shared, args.matrices[item.matrix], item, stage, x_stage);
    output.store(sums);
    __syncwarp();
    if (is_first_lane) arrive(shared.item_stored(slot.index));
  });
}

struct GivenTokens {
  __device__ explicit GivenTokens(const MoeSkinnyArgs&) {}
};

template <int kColumns, typename Limits, bool kHasCodes>
__global__ void __launch_bounds__(kThreads, 1)
    moe_skinny_matrices(const __grid_constant__ MoeSkinnyArgs args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared<kColumns> shared(memory);
  if (threadIdx.x == 0) {
    for (const MatrixArgs& matrix : args.matrices) {
      prefetch_map(&matrix.matrices);
      prefetch_map(&matrix.x);
    }
    shared.init_barriers(kHasCodes);
  }
  wait_for_previous_grid();
  constexpr bool kCountsChoices = kHasCodes && !kHasPlaceForRows<Limits>;
  const Plan<Limits, kCountsChoices> plan(args.call, shared.template plan<Limits>(), kColumns);
  const std::conditional_t<kHasCodes, GivenTokens, OwnTokens> tokens(args);
  const int num_groups = make_groups(plan, shared);
  if constexpr (kHasCodes) list_choices(args, plan, shared);
  const int warp = threadIdx.x / kWarpSize;
  if (warp == kMatrixWarp) {
    if (is_elected()) MatrixCopier<kColumns>(args, shared).run();
  } else if (warp == kXWarp) {
    if constexpr (kHasCodes) {
      TokenCopier<kColumns>(args, shared).run();
    } else if (is_elected()) {
      copy_x(args, shared);
    }
  } else if (warp == kItemWarp) {
    ItemTaker<kColumns, kHasCodes>(args, shared, num_groups).run();
  } else if (warp == kReadyWarp) {
    if (is_elected()) tell_of_tiles(args, shared);
  } else {
    if constexpr (kHasCodes) {
      wait_for(shared.plan_read(), 0);
    } else {
      tokens.make(plan, shared);
    }
    multiply_items<kHasCodes>(args, shared);
  }
}

}  // namespace atom::ops::device::moe_skinny
