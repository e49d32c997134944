// Inside the linear for many rows on Hopper: the launches that the file of each element type
// defines.
#pragma once

#include <cuda.h>

#include "ops/linear/wgmma/wgmma_cuda.h"

namespace atom::ops::device {

constexpr int kWgmmaTileRows = 128, kWgmmaTileColumns = 256;
constexpr int kWgmmaClusterSize = 2;  // row tiles

struct WgmmaArgs {
  // TMA boxes: 128 bytes by a tile's rows of x, 128 bytes by half a tile's rows of the weight.
  CUtensorMap x, weight;
  LinearGpuCall params;
  int weight_stride;                    // weight rows from a tile's first half to its second
  int num_row_steps, num_column_steps;  // of two row tiles, and of column tiles
  int group_rows;  // row steps whose columns are gone through before the next ones'
  int num_clusters;
  int num_chunks;  // of 128 bytes of k, a stage each
};

gpuError_t launch_wgmma_bfloat16(const WgmmaArgs& args, gpuStream_t stream);
gpuError_t launch_wgmma_float16(const WgmmaArgs& args, gpuStream_t stream);

}  // namespace atom::ops::device
