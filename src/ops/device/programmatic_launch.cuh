// Launches whose first part overlaps the end of the kernel before them (programmatic dependent
// launch). The rule that makes chains of them right: every kernel waits for the previous grid in
// every block before it reads what a kernel wrote or writes anything, and so nothing that ran
// before the previous grid can still be running either.
#pragma once

#include <cstdint>
#include <utility>

#include "tensor/gpu_api.h"

namespace atom::ops::device {

// Returns when the grid before this one has ended and its writes are visible.
__device__ inline void wait_for_previous_grid() {
  gpu_wait_for_previous_grid();
}

// The next grid may start once every block of this one has said so or has ended.
__device__ inline void allow_next_grid() {
  gpu_allow_next_grid();
}

// With more rows a kernel runs for longer than a launch takes, and the first-level cache, which
// overlapping leaves hardly any of, counts for more.
constexpr int64_t kManyRows = 1024;

// Launches on `stream`; with `overlaps_previous` the grid may start before the previous one ends.
template <typename... Parameters, typename... Arguments>
gpuError_t launch(void (*kernel)(Parameters...),
                  dim3 grid,
                  dim3 block,
                  size_t shared_size,  // bytes of dynamic shared memory
                  gpuStream_t stream,
                  bool overlaps_previous,
                  Arguments&&... arguments) {
  return gpu_launch({.grid = grid,
                     .block = block,
                     .shared_size = shared_size,
                     .stream = stream,
                     .overlaps_previous = overlaps_previous},
                    kernel,
                    std::forward<Arguments>(arguments)...);
}

// The same of blocks in clusters of `cluster_size`.
template <typename... Parameters, typename... Arguments>
gpuError_t launch_clusters(void (*kernel)(Parameters...),
                           int num_blocks,
                           int cluster_size,
                           int num_threads,
                           size_t shared_size,
                           gpuStream_t stream,
                           bool overlaps_previous,
                           Arguments&&... arguments) {
  return gpu_launch({.grid = dim3(num_blocks),
                     .block = dim3(num_threads),
                     .shared_size = shared_size,
                     .stream = stream,
                     .overlaps_previous = overlaps_previous,
                     .cluster_size = static_cast<unsigned>(cluster_size)},
                    kernel,
                    std::forward<Arguments>(arguments)...);
}

}  // namespace atom::ops::device
