// Inside fused_moe by MXFP4 and FP8: the kernel. Of a block's three warpgroups the last has a
// thread that copies a tile's rows of a matrix and its tokens to a ring of stages, and warps that
// read exponents; the others multiply.
#pragma once

#include "ops/fused_moe/moe_mixed_copy.cuh"
#include "ops/fused_moe/moe_mixed_exponents.cuh"
#include "ops/fused_moe/moe_mixed_multiplier.cuh"
#include "ops/fused_moe/moe_mixed_scale_copy.cuh"
#include "ops/fused_moe/moe_tile_launch.cuh"

namespace atom::ops::device::mixed {

template <bool kGated>
__global__ void __launch_bounds__(kThreads, 1)
    moe_mixed(const __grid_constant__ MoeMixedArgs args) {
  // All together they have 504 for each thread of a warpgroup.
  constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared<kGated> shared(memory);
  if (threadIdx.x == 0) {
    prefetch_map(&args.x);
    prefetch_map(&args.matrices);
    shared.init_barriers();
  }
  make_tables(shared.tables());
  // Behind a row's end codes are zeros, by any table.
  for (int i = threadIdx.x * kVectorSize; i < kPlaceBuffers * kPlacesSize;
       i += kThreads * kVectorSize) {
    store_shared(shared.places(0) + i, uint4{});
  }
  allow_next_grid();
  __syncthreads();
  wait_for_previous_grid();
  if (threadIdx.x >= kNumConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    const int thread = threadIdx.x - kNumConsumers;
    if (thread < kWarpSize) {
      copy_tiles(args, shared);
    } else if (thread < (1 + kExponentWarps) * kWarpSize) {
      ExponentReader(args, shared, thread - kWarpSize).run();
    } else {
      ScaleCopier(args, shared).run();
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    Multiplier<kGated> multiplier(args, shared);
    for_tiles(args, [&](const Tile& tile) { multiplier.run(tile); });
  }
}

template <bool kGated>
gpuError_t launch_matrix(const MoeMixedArgs& args, int num_blocks, gpuStream_t stream) {
  return launch_tile_clusters<moe_mixed<kGated>>(
      args, num_blocks, {1, kThreads, kSharedSize}, stream);
}

}  // namespace atom::ops::device::mixed
