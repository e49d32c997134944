// Inside fused_moe by rows of matrices on Hopper: the kernel. Of a block's warpgroups the last
// copies a tile's tokens and rows of a matrix to a ring of stages, by one thread; the others
// multiply.
#pragma once

#include "ops/fused_moe/moe_rows_copy.cuh"
#include "ops/fused_moe/moe_rows_early.cuh"
#include "ops/fused_moe/moe_rows_multiplier.cuh"

namespace atom::ops::device::rows {

// By a warp.
template <typename W, int kTokens, bool kGated>
__device__ void copy_tiles(const MoeRowsArgs& args, const Shared<W, kTokens>& shared) {
  Copier<W, kTokens, kGated> copier(args, shared);
  if constexpr (kGated && Chunk<W>::kEarly) {
    MoeTile first;
    if (find_first_tile(args, first)) copier.begin(first);
    __syncwarp();
    wait_for_previous_grid();
  }
  bool has_waited = kGated;
  for_tiles<W, kTokens>(args, [&](const MoeTile& tile) {
    if (!has_waited) {
      copier.begin(tile);
      wait_for_previous_grid();
      has_waited = true;
    }
    copier.run(tile);
  });
  if (!has_waited) wait_for_previous_grid();
}

template <typename W, int kTokens, bool kGated>
__global__ void __launch_bounds__(kThreadsOf<W>, kIsSmall<W, kTokens> ? 2 : 1)
    moe_rows(const __grid_constant__ MoeRowsArgs args) {
  constexpr bool kMovesRegisters = !kIsSmall<W, kTokens>;
  // All together they have 504 for each thread of a warpgroup, or 480.
  constexpr bool kHasFour = Chunk<W>::kGroups > 2;
  constexpr int kProducerRegisters = kHasFour ? 32 : 40, kConsumerRegisters = kHasFour ? 112 : 232;
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared<W, kTokens> shared(args, memory);
  if (threadIdx.x == 0) {
    prefetch_map(&args.x);
    if (!Chunk<W>::kImages) prefetch_map(&args.matrices);
    shared.init_barriers();
  }
  __syncthreads();
  // The order of choices is of the kernel before the first of the two, whose blocks have waited for
  // it before the second may start. That one's sums need what its copies wait for.
  constexpr bool kEarly = kGated && Chunk<W>::kEarly;
  if (kEarly) {
    if (threadIdx.x < kNumConsumers<W>) wait_for_previous_grid();
    if (threadIdx.x < kNumConsumers<W>) allow_next_grid();
  } else {
    if (kGated) wait_for_previous_grid();
    allow_next_grid();
  }
  if (threadIdx.x >= kNumConsumers<W>) {
    if constexpr (kMovesRegisters) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    }
    if (threadIdx.x / kWarpSize == kConsumerWarps<W>) copy_tiles<W, kTokens, kGated>(args, shared);
  } else {
    if constexpr (kMovesRegisters) {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    }
    Multiplier<W, kTokens, kGated> multiplier(args, shared);
    for_tiles<W, kTokens>(args, [&](const MoeTile& tile) { multiplier.run(tile); });
  }
}

}  // namespace atom::ops::device::rows
