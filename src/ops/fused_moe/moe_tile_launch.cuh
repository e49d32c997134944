// Inside fused_moe on Hopper: the launch of kernels whose clusters stay for many tiles.
#pragma once

#include "ops/device/programmatic_launch.cuh"
#include "tensor/per_card.h"

namespace atom::ops::device {

struct ClusterShape {
  int cluster_size, num_threads, shared_size;
};

// Of as many of `num_blocks` as are whole clusters; may start before the kernel before it ends.
template <auto kKernel, typename Args>
gpuError_t launch_tile_clusters(const Args& args,
                                int num_blocks,
                                const ClusterShape& shape,
                                gpuStream_t stream) {
  static PerCard<gpuError_t> allowed;
  const gpuError_t prepared = allowed.get([&] {
    return cudaFuncSetAttribute(
        kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shape.shared_size);
  });
  if (prepared != cudaSuccess) return prepared;
  return launch_clusters(kKernel,
                         num_blocks / shape.cluster_size * shape.cluster_size,
                         shape.cluster_size,
                         shape.num_threads,
                         shape.shared_size,
                         stream,
                         true,
                         args);
}

}  // namespace atom::ops::device
