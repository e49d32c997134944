// y = x W^T (+ b) on a Hopper GPU in FP8 with scales of groups of 128 values of k (those of a
// weight for blocks of rows), for many rows: tiles of rows of x and of 128 or 64 weight rows in
// persistent blocks, in which one warpgroup copies x and the weight to shared memory and two
// multiply.
//
// The matrix units add up the 128 products of a group, which are then scaled and added in float32
// by ascending k, whatever the number of rows and the tile: a row has the same bits in every batch.
#pragma once

#include "ops/linear/linear_gpu_call.h"

namespace atom::ops {

// Which tile a block multiplies.
struct LinearBlocksTuning {
  int tile_rows = 256;     // of x: 256 or 128
  int tile_columns = 128;  // of the weight: 128, or with 128 rows and without SiLU 64
  int cluster_size = 2;    // row tiles that share the weight's copies: 2, or 1 with 128 rows
  bool takes_turns = true;
};

// What takes least time for a shape.
LinearBlocksTuning linear_blocks_tuning(const LinearGpuCall& params, int num_multiprocessors);

// Compute capability 9.0. Groups with scale_rows of 64 or 128; y of 2 bytes, stored or with SiLU,
// whose gate rows are a multiple of 64. Rows of x, of the weight and of y are multiples of 16
// bytes.
bool supports_linear_blocks(const LinearGpuCall& params);
// `tuning`: null for what linear_blocks_tuning() says.
gpuError_t launch_linear_blocks(const LinearGpuCall& params,
                                const LinearBlocksTuning* tuning,
                                gpuStream_t stream);

}  // namespace atom::ops
