// Inside the linear in FP8 with scales of groups on Hopper: the launches that the file of each tile
// defines.
#pragma once

#include <cuda.h>

#include "ops/linear/blocks/blocks_cuda.h"

namespace atom::ops::device {

struct BlocksArgs {
  // x in boxes of 128 bytes of the rows of a tile, the weight of half a tile's columns; y in those
  // of 64 columns of 16 rows.
  CUtensorMap x, weight, y;
  LinearGpuCall params;
  int weight_stride;                    // weight rows from a tile's first half to its second
  int num_row_steps, num_column_steps;  // of a cluster's row tiles, and of column tiles
  int group_rows;                       // row steps whose columns are gone through together
  int num_clusters;
  int num_groups;  // of k, a stage each
};

gpuError_t launch_blocks_256x128(const BlocksArgs& args, gpuStream_t stream);  // in pairs
gpuError_t launch_blocks_256x128_free(const BlocksArgs& args, gpuStream_t stream);
gpuError_t launch_blocks_128x128_pair(const BlocksArgs& args, gpuStream_t stream);
gpuError_t launch_blocks_128x128(const BlocksArgs& args, gpuStream_t stream);
gpuError_t launch_blocks_128x64(const BlocksArgs& args, gpuStream_t stream);

}  // namespace atom::ops::device
