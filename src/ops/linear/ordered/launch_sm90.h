// Inside the ordered linear for few rows on Hopper: the launches that the file of each element type
// defines.
#pragma once

#include <cuda.h>

#include "ops/linear/ordered/ordered_sm90.h"

namespace atom::ops::device {

struct OrderedArgs {
  // [panels, rows, panel] in boxes of box_rows() rows (x: of x_rows) and of the panels of a stage.
  CUtensorMap weight, x;
  LinearGpuCall params;
  int tile_rows;  // of the weight: a multiple of 16, to 128
  // Warpgroups have whole tiles: in FP8 each multiplies every other stage; in 16 bits the first one
  // has all rows of x, since an instruction takes as long for few rows as for many, or each has
  // half of them (splits_x). Else they have half tiles.
  bool whole_tiles;
  bool splits_x;
  // With SiLU half of a tile are rows of the gate, the others those of up that belong to them, in
  // boxes of their own.
  bool is_gated;
  int columns;     // rows of x that a warpgroup multiplies: 8, 16, 32 or 64
  int num_panels;  // of 128 bytes of k, of a stage
  int num_chunks;  // of k, a stage each
  int num_stages;
  int num_tiles;

  __host__ __device__ int box_rows() const { return is_gated ? tile_rows / 2 : tile_rows; }
  // Outputs, of a tile and of all.
  __host__ __device__ int num_outputs() const {
    return is_gated ? params.out_features / 2 : params.out_features;
  }
  __host__ __device__ bool takes_turns() const {
    return whole_tiles && params.weight_element == Element::kFloat8E4M3;
  }
  __host__ __device__ bool has_one_group() const {
    return whole_tiles && !takes_turns() && !splits_x;
  }
  __host__ __device__ int x_rows() const { return splits_x ? 2 * columns : columns; }
};

// Shared memory: the stages, then a tile's sums (first those that warpgroups hand over), then what
// belongs to its rows and to those of x, then barriers.
struct OrderedLayout {
  int stage_size, sums, sums_stride, rows, x_scales, barriers, size;

  __host__ __device__ explicit OrderedLayout(const OrderedArgs& args) {
    constexpr int kPanelSize = 128, kBarrierSize = 8;
    constexpr int kOverread = 64 * kPanelSize;  // the matrix units read 64 weight rows
    stage_size = args.num_panels * (args.tile_rows + args.x_rows()) * kPanelSize;
    sums = args.num_stages * stage_size;
    sums_stride = args.tile_rows + 4;  // floats, so that what a warp stores is in different banks
    const int num_sums = args.x_rows() * sums_stride;
    const int num_handed_over = args.takes_turns() ? 64 * args.columns : 0;
    rows = sums + (num_sums > num_handed_over ? num_sums : num_handed_over) * int{sizeof(float)};
    x_scales = rows + 2 * args.tile_rows * int{sizeof(float)};
    const int end = x_scales + args.x_rows() * int{sizeof(float)};
    barriers = end < sums + kOverread ? sums + kOverread : end;
    size = barriers + 2 * args.num_stages * kBarrierSize;
  }
};

gpuError_t launch_ordered_bfloat16(const OrderedArgs& args, int num_blocks, gpuStream_t stream);
gpuError_t launch_ordered_float16(const OrderedArgs& args, int num_blocks, gpuStream_t stream);
gpuError_t launch_ordered_float8(const OrderedArgs& args, int num_blocks, gpuStream_t stream);

}  // namespace atom::ops::device
