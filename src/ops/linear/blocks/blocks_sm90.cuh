// Inside the linear in FP8 with scales of groups on Hopper: the kernel. Of a block's three
// warpgroups the last copies x and the weight to a ring of stages, by a thread each, and their
// scales, by two warps; the others multiply the halves of a tile's rows: while one scales and adds
// what a group's products gave, the matrix units work for the other.
#pragma once

#include "ops/linear/blocks/multiplier.cuh"
#include "ops/linear/blocks/stage.cuh"

namespace atom::ops::device::blocks {

template <typename S>
__device__ void init_barriers(const BlocksArgs& args, const Shared<S>& shared) {
  const int num_scale_copiers = args.is_ahead ? kScaleThreads : kScaleWarps;
  for (int i = 0; i < S::kNumStages; ++i) {
    init_barrier(shared.full(i), 1 + num_scale_copiers);
    init_barrier(shared.empty(i), S::kSharers * kConsumerWarps);
  }
  publish_barriers();
}

// All threads of the cluster call it. What other blocks wrote is not there yet.
template <typename S>
__device__ void meet_in_cluster() {
  if constexpr (S::kClusterSize > 1) {
    arrive_at_cluster();
    wait_for_cluster();
  } else {
    __syncthreads();
  }
}

template <typename S>
__global__ void __launch_bounds__(kNumThreads, 1)
    blocks_linear(const __grid_constant__ BlocksArgs args) {
  // All together they have 504 for each thread of a warpgroup.
  constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared<S> shared(memory);
  if (threadIdx.x == 0) {
    prefetch_map(&args.x);
    prefetch_map(&args.weight);
    prefetch_map(&args.y);
    init_barriers(args, shared);
  }
  allow_next_grid();
  __syncwarp();
  meet_in_cluster<S>();
  if (threadIdx.x >= kNumConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    const int warp = threadIdx.x / kWarpSize - kConsumerWarps;
    if (warp == 0 && is_elected()) copy_weight<S>(args, shared);
    if (warp == 1 && is_elected()) copy_x<S>(args, shared);
    if (warp >= 2) ScaleCopier<S>(args, shared).run();
    __syncwarp();
    if constexpr (S::kParts > 1) synchronize_cluster();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    wait_for_previous_grid();
    Multiplier<S> multiplier(args, shared);
    for_tiles<S>(args, [&](int row_tile, int column_tile) {
      multiplier.run(row_tile, column_tile);
      if constexpr (S::kParts > 1) {
        multiplier.bring(row_tile);
        synchronize_cluster();
        multiplier.join(row_tile, column_tile);
      }
    });
    multiplier.finish();
  }
  // Until then the other blocks write here; those of parts have done so.
  if constexpr (S::kParts == 1) meet_in_cluster<S>();
}

// The launch of one tile's size, in a file of its own.
template <typename S>
gpuError_t launch_blocks(const BlocksArgs& args, gpuStream_t stream) {
  auto* kernel = &blocks_linear<S>;
  const gpuError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kSharedSize);
  if (error != cudaSuccess) return error;
  if constexpr (S::kClusterSize > 1) {
    return launch_clusters(kernel,
                           args.num_clusters * S::kClusterSize,
                           S::kClusterSize,
                           kNumThreads,
                           S::kSharedSize,
                           stream,
                           args.params.overlaps_previous,
                           args);
  } else {
    return launch(kernel,
                  dim3(args.num_clusters),
                  dim3(kNumThreads),
                  S::kSharedSize,
                  stream,
                  args.params.overlaps_previous,
                  args);
  }
}

}  // namespace atom::ops::device::blocks
