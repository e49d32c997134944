// y = x W^T (+ b) on a Hopper GPU in FP8 with scales of groups of 128 values of k (those of a
// weight for blocks of rows), for many rows: tiles of rows of x and of 64 to 192 weight rows in
// persistent blocks, in which one warpgroup copies x and the weight to shared memory and two
// multiply. Where tiles are few the blocks of a cluster may have a part of k each.
//
// The matrix units add up the 128 products of a group, which are then scaled and added in float32
// by ascending k, whatever the number of rows and the tile: with k whole a row has the same bits in
// every batch. The sums of parts of k are added by ascending k too, but what the parts are depends
// on the number of rows.
#pragma once

#include "ops/linear/blocks/tuning.h"
#include "ops/linear/linear_gpu_call.h"

namespace atom::ops {

// What the choice of a tile depends on.
LinearBlocksShape linear_blocks_shape(const LinearGpuCall& params);

// Compute capability 9.0. Groups with scale_rows of 64 or 128; y of 2 bytes, stored or with SiLU,
// whose gate rows are a multiple of 64. Rows of x, of the weight and of y are multiples of 16
// bytes.
bool supports_linear_blocks(const LinearGpuCall& params);
// `tuning`: null for what linear_blocks_tuning() says of the shape with k whole.
gpuError_t launch_linear_blocks(const LinearGpuCall& params,
                                const LinearBlocksTuning* tuning,
                                gpuStream_t stream);

}  // namespace atom::ops
