// Inside fused_moe on Hopper: how many clusters a launch may have.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

namespace atom::ops {

// The clusters of a kernel of one block a multiprocessor that run side by side on the current card,
// of whose multiprocessors some may not fill a cluster.
template <typename Args>
int most_clusters(void (*kernel)(Args),
                  int num_multiprocessors,
                  int cluster_size,
                  int num_threads,
                  size_t shared_size) {
  const int most = num_multiprocessors / cluster_size;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(cluster_size), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(most * cluster_size);
  config.blockDim = dim3(num_threads);
  config.dynamicSmemBytes = shared_size;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int count = 0;
  const cudaError_t error = cudaOccupancyMaxActiveClusters(&count, kernel, &config);
  return error == cudaSuccess && count > 0 ? std::min(count, most) : most;
}

}  // namespace atom::ops
