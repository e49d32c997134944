// y = x W^T (+ b) on a Hopper GPU for weights of few rows, as routers have: so small that a launch
// takes as long as its chain of latencies. Tiles of outputs are small and k is divided among the
// warps of a cluster of blocks, so that what a warp multiplies is on its way at once.
//
// Sums are added in one order: every output is the same bits for the same shapes.
#pragma once

#include "ops/linear/linear_gpu_call.h"

namespace atom::ops {

// Compute capability 9.0. x and weight are both bfloat16 or both float16, without scales;
// in_features and x_stride are multiples of 16 bytes.
bool supports_linear_narrow(const LinearGpuCall& params);
gpuError_t launch_linear_narrow(const LinearGpuCall& params, gpuStream_t stream);

// Bytes that all blocks of a launch read together, each its share of x and of the weight.
int64_t linear_narrow_traffic(const LinearGpuCall& params);

}  // namespace atom::ops
