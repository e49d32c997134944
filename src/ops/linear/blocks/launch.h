// Inside the linear in FP8 with scales of groups on Hopper: the launches that the file of each tile
// defines.
#pragma once

#include <cuda.h>

#include "ops/linear/blocks/blocks_cuda.h"

namespace atom::ops::device {

struct BlocksArgs {
  // x in boxes of 128 bytes of the rows that a block copies of a tile, the weight of half a tile's
  // columns; y in those of 16 rows of 64 columns, or 32.
  CUtensorMap x, weight, y;
  LinearGpuCall params;
  int tile_rows;                        // that are there, a multiple of 16; the others are anything
  int weight_stride;                    // weight rows from a tile's first half to its second
  int num_row_steps, num_column_steps;  // of a cluster's row tiles and column tiles
  int group_rows;                       // row steps whose columns are gone through together
  int num_clusters;
  int num_groups;  // of k, a stage each
  // Whether a block has one tile and so few rows that latencies count: then its weight comes to the
  // caches while the kernel before runs, and scales are copied without being waited for.
  bool is_ahead;
};

// Behind the tile: how many row tiles and column tiles share copies, and the parts of k.
gpuError_t launch_blocks_256x128_2x1(const BlocksArgs& args, gpuStream_t stream);
gpuError_t launch_blocks_256x128_2x1_free(const BlocksArgs& args, gpuStream_t stream);
gpuError_t launch_blocks_128x192_2x1(const BlocksArgs& args, gpuStream_t stream);
gpuError_t launch_blocks_128x192_1x2(const BlocksArgs& args, gpuStream_t stream);
gpuError_t launch_blocks_128x128_2x1(const BlocksArgs& args, gpuStream_t stream);
gpuError_t launch_blocks_128x128_1x1(const BlocksArgs& args, gpuStream_t stream);
gpuError_t launch_blocks_128x128_2x1_free(const BlocksArgs& args, gpuStream_t stream);
gpuError_t launch_blocks_128x128_1x1_free(const BlocksArgs& args, gpuStream_t stream);
gpuError_t launch_blocks_128x128_1x1x2_free(const BlocksArgs& args, gpuStream_t stream);
gpuError_t launch_blocks_128x96_2x1_free(const BlocksArgs& args, gpuStream_t stream);
gpuError_t launch_blocks_128x64_1x1(const BlocksArgs& args, gpuStream_t stream);
gpuError_t launch_blocks_128x64_1x1_free(const BlocksArgs& args, gpuStream_t stream);
gpuError_t launch_blocks_128x64_1x1x2_free(const BlocksArgs& args, gpuStream_t stream);

}  // namespace atom::ops::device
