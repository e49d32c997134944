// Inside the linear with k divided on Hopper: the kernel. A block has a part of k of a tile of
// weight rows, and one thread starts all copies. Two warpgroups multiply, each half of the tile's
// columns. At the end the sums of all blocks of the cluster come to the shared memory of the one
// that finishes them, without anybody's waiting for more than these.
#pragma once

#include "ops/linear/split_k/finish.cuh"

namespace atom::ops::device::split_k {

template <typename S>
__device__ void init_barriers(const SplitKArgs& args, const Work<S>& work, const Shared& shared) {
  init_barrier(shared.scales_full(), kNumConsumers + 1);
  init_barrier(shared.sums_full(), 1);
  for (int i = 0; i < args.layout.num_x_stages; ++i) {
    init_barrier(shared.x_full(i), 1);
    init_barrier(shared.done(i), kConsumerWarps);
  }
  for (int i = 0; i < args.layout.num_weight_stages; ++i) init_barrier(shared.weight_full(i), 1);
  publish_barriers();
  const int num_items = Items<S>(args).count_of(work.part);
  if (S::kParts > 1) arrive_expecting(shared.sums_full(), num_items * S::kParts * kItemSize);
}

template <typename S>
__device__ void load_biases(const SplitKArgs& args, const Work<S>& work, const Shared& shared) {
  const LinearGpuCall& p = args.params;
  const int i = threadIdx.x, feature = work.tile * S::kColumns + i;
  if (i >= S::kColumns) return;
  const bool exists = p.bias != nullptr && feature < p.out_features;
  shared.biases()[i] = exists ? load_as(p.bias_element, p.bias, feature) : 0;
}

template <typename S>
__device__ void consume(const SplitKArgs& args, const Work<S>& work, const Shared& shared) {
  Sums<S> sums(args, work, shared);
  copy_weight_scales<S>(args, work, shared);
  wait_for_previous_grid();
  sums.multiply();
  Joiner<S>(args, work, shared).run(sums);
}

template <typename S>
__global__ void __maxnreg__(128) split_k_linear(const __grid_constant__ SplitKArgs args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared shared(args, memory);
  const Work<S> work(args);
  const Producer<S> producer(args, work, shared);
  const bool produces = threadIdx.x >= kNumConsumers;
  if (produces && is_elected()) {
    prefetch_map(&args.weight);
    prefetch_map(&args.x);
    prefetch_map(&args.x_scales);
    init_barriers<S>(args, work, shared);
    producer.prefill();
  }
  if (!produces) load_biases<S>(args, work, shared);
  __syncwarp();
  if constexpr (S::kParts > 1) arrive_at_cluster();
  __syncthreads();
  if constexpr (S::kParts > 1) wait_for_cluster();
  if (!produces) {
    consume<S>(args, work, shared);
  } else if (is_elected()) {
    wait_for_previous_grid();
    producer.run();
    allow_next_grid();
  }
}

template <typename S>
gpuError_t launch_split_k(const SplitKArgs& args, gpuStream_t stream) {
  auto* kernel = &split_k_linear<S>;
  const int size = args.layout.size;
  const gpuError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, size);
  if (error != cudaSuccess) return error;
  return launch_clusters(kernel,
                         args.num_tiles * S::kParts,
                         S::kParts,
                         kNumConsumers + kWarpSize,
                         size,
                         stream,
                         args.params.overlaps_previous,
                         args);
}

}  // namespace atom::ops::device::split_k
