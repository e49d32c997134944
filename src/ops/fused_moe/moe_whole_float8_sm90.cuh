// Inside fused_moe by whole tiles in FP8 on Hopper: the kernel. Of a block's three warpgroups the
// last copies a tile's rows of a matrix, its tokens and their scales to a ring of stages, by a
// thread, a thread and a warp; the others multiply 64 tokens each by all of the rows.
#pragma once

#include "ops/fused_moe/moe_tile_launch.cuh"
#include "ops/fused_moe/moe_whole_float8_copy.cuh"
#include "ops/fused_moe/moe_whole_float8_product.cuh"
#include "ops/fused_moe/moe_whole_float8_scale_copy.cuh"
#include "ops/fused_moe/moe_whole_float8_token_copy.cuh"

namespace atom::ops::device::whole8 {

template <bool kGated>
__global__ void __launch_bounds__(kNumThreads, 1)
    moe_whole_float8(const __grid_constant__ MoeWholeFloat8Args args) {
  // All together they have 504 for each thread of a warpgroup.
  constexpr int kProducerRegisters = 56, kConsumerRegisters = 224;
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared shared(memory);
  if (threadIdx.x == 0) {
    prefetch_map(&args.x);
    prefetch_map(&args.matrices);
    shared.init_barriers(kGated ? 2 : 1);
  }
  allow_next_grid();
  __syncwarp();
  arrive_at_cluster();
  wait_for_cluster();
  wait_for_previous_grid();
  if (threadIdx.x >= kNumConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    const int warp = threadIdx.x / kWarpSize - kConsumerWarps;
    if (warp == 0) copy_matrices<kGated>(args, shared);
    if (warp == 1) ScaleCopier<kGated>(args, shared).run();
    if (warp >= 2 && kGated) TokenCopier(args, shared, warp - 2).run();
    if (warp == 2 && !kGated) copy_x(args, shared);
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    Multiplier<kGated> multiplier(args, shared);
    for_tiles(args, [&](const Tile& tile) { multiplier.run(tile); });
    multiplier.finish();
  }
  // Until then the other block writes here.
  arrive_at_cluster();
  wait_for_cluster();
}

// In a file of its own each.
template <bool kGated>
gpuError_t launch_matrices(const MoeWholeFloat8Args& args, int num_blocks, gpuStream_t stream) {
  return launch_tile_clusters<moe_whole_float8<kGated>>(
      args, num_blocks, {kClusterSize, kNumThreads, kSharedSize}, stream);
}

}  // namespace atom::ops::device::whole8
