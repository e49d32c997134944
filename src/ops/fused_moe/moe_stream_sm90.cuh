// Inside fused_moe on Hopper: the kernel for the few tokens of a decode step, one of the two
// matrices of all experts that the tokens chose. One warp has the copy engine fill a ring with
// slices of tiles of 16 rows, another brings the rows of x of each group of tokens; eight warps
// divide each slice among them, and their sums are added in the order of the warps. A result
// depends on its token and expert alone.
#pragma once

#include "ops/fused_moe/moe_stream_consumer.cuh"

namespace atom::ops::device {

template <typename W, int kTokens, int kSteps, bool kGated>
__global__ void __launch_bounds__(kStreamThreads, 2)
    moe_stream(const __grid_constant__ MoeStreamArgs args) {
  extern __shared__ __align__(128) uint8_t shared[];
  const StreamBarriers barriers(shared);
  if (threadIdx.x == 0) barriers.init();
  // The choices are of the kernel before the first of the two, whose blocks have waited for it
  // before the second may start.
  if (kGated) wait_for_previous_grid();
  allow_next_grid();
  const UnitRun run(args, make_groups<kTokens>(args, shared));
  const int warp = threadIdx.x / kWarpSize;
  if (warp == kCopyWarp) {
    copy_matrices<W, kSteps, kGated>(args, run, barriers, shared);
  } else if (warp == kTokenWarp) {
    copy_tokens<kTokens, kGated>(args, run, barriers, shared);
  } else {
    Consumer<W, kTokens, kSteps, kGated>(args, barriers, shared).run(run);
  }
}

}  // namespace atom::ops::device
