// Inside the linear with k divided on Hopper: the launches that the files of each tile define.
#pragma once

#include <cuda.h>

#include "ops/linear/split_k/split_k_cuda.h"

namespace atom::ops::device {

// Shared memory: two rings of stages, of a group of k each, then sums, scales and barriers. In
// bytes.
struct SplitKLayout {
  int num_x_stages, num_weight_stages;
  int x_scale_stride;  // of groups, from row to row
  int weight, sums, x_scales, weight_scales, biases, barriers, size;
};

struct SplitKArgs {
  // In boxes of 128 bytes of x_rows rows, and of a tile's weight rows.
  CUtensorMap x, weight;
  CUtensorMap x_scales;  // in boxes of x_rows rows of as many groups as a part has
  LinearGpuCall params;
  int x_rows;  // num_rows, rounded up to 8
  int num_groups;
  int num_tiles;
  SplitKLayout layout;
};

using SplitKLaunch = gpuError_t(const SplitKArgs& args, gpuStream_t stream);
// Columns of a tile x parts of k.
SplitKLaunch launch_split_k_64x1;
SplitKLaunch launch_split_k_64x2;
SplitKLaunch launch_split_k_64x4;
SplitKLaunch launch_split_k_80x1;
SplitKLaunch launch_split_k_80x2;
SplitKLaunch launch_split_k_80x4;
SplitKLaunch launch_split_k_96x1;
SplitKLaunch launch_split_k_96x2;
SplitKLaunch launch_split_k_96x4;

}  // namespace atom::ops::device
