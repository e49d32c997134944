// Inside fused_moe by wide tiles of matrices in MXFP4 on Hopper: the kernel. Of a block's three
// warpgroups the last one fills stages, the others multiply, as those of matrices in FP8 do.
#pragma once

#include "ops/fused_moe/moe_wide_float4_expand.cuh"
#include "ops/fused_moe/moe_wide_float8_product.cuh"
#include "tensor/per_card.h"

namespace atom::ops::device::wide8 {

template <bool kGated>
__global__ void __launch_bounds__(kNumThreads, 1)
    moe_wide_float4(const __grid_constant__ MoeWideFloat8Args args) {
  // All together they have 504 for each thread of a warpgroup.
  constexpr int kExpanderRegisters = 88, kConsumerRegisters = 208;
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared<true> shared(memory);
  if (threadIdx.x == 0) {
    prefetch_map(&args.x);
    prefetch_map(&args.matrices);
    shared.init_barriers();
  }
  allow_next_grid();
  __syncthreads();
  wait_for_previous_grid();
  if (threadIdx.x >= kNumConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kExpanderRegisters));
    Expander<kGated>(args, shared).run();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    Multiplier<kGated, true> multiplier(args, shared);
    for_tiles(args, [&](const Tile& tile) { multiplier.run(tile); });
    multiplier.finish();
  }
}

// In a file of its own each.
template <bool kGated>
gpuError_t launch_float4_matrices(const MoeWideFloat8Args& args,
                                  int num_blocks,
                                  gpuStream_t stream) {
  auto* kernel = &moe_wide_float4<kGated>;
  static PerCard<gpuError_t> allowed;
  const gpuError_t prepared = allowed.get([&] {
    return cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Layout<true>::kSize);
  });
  if (prepared != cudaSuccess) return prepared;
  return launch_clusters(kernel,
                         num_blocks / kClusterSize * kClusterSize,
                         kClusterSize,
                         kNumThreads,
                         Layout<true>::kSize,
                         stream,
                         true,
                         args);
}

}  // namespace atom::ops::device::wide8
