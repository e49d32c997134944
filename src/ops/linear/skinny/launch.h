// Inside the linear for few rows on Hopper: the launches that the file of each element type
// defines.
#pragma once

#include <cuda.h>

#include "ops/linear/skinny/skinny_cuda.h"

namespace atom::ops::device {

// Shared memory: the stages, then sums, then what belongs to weight rows, then barriers. In bytes.
struct SkinnyLayout {
  int stage_size;
  int sums, part_size;  // the sums, and those of a part of k
  int sums_stride;      // weight rows from the sums with a pair of rows of x to the next ones
  int rows, rows_size;
  int x_scales;
  int groups, groups_stride;  // with groups: the scales of x, from a group's to the next one's
  int barriers, size;
};

// With groups, by the rows of x that an instruction takes: panels of a stage, for which there are
// registers to unroll.
constexpr int skinny_group_panels(int columns) {
  return columns > 16 ? 2 : 4;
}

struct SkinnyArgs {
  // Of [panels, rows, panel] where panels are whole, else of [1, rows, row]. A box has the rows of
  // a tile (with SiLU of half a tile), or x_rows, and box_panels panels.
  CUtensorMap weight, x;
  LinearGpuCall params;
  // With groups; params has none.
  const float *x_group_scales, *weight_group_scales;
  int num_groups;
  int half_rows;      // of a tile, that one warpgroup multiplies: a multiple of 8, to 128
  int half_stride;    // weight rows from a tile's first half to its second
  int x_rows;         // num_rows, rounded up to 8
  int num_panels;     // of a stage
  int box_panels;     // num_panels or 1
  bool whole_panels;  // of a row
  int num_stages;
  int num_ahead;  // stages' weights that come to the second-level cache before x is there
  int num_tiles;
  int num_clusters;
  int num_chunks;  // of k, a stage each
  int log_splits;
  bool takes_turns;    // a warpgroup multiplies whole tiles of every other stage, else half of each
  int num_parts;       // of a tile's sums, from one block
  bool reuses_stages;  // for the sums, when all stages have been used
  SkinnyLayout layout;
};

gpuError_t launch_skinny_bfloat16(const SkinnyArgs& args, gpuStream_t stream);
gpuError_t launch_skinny_float16(const SkinnyArgs& args, gpuStream_t stream);
gpuError_t launch_skinny_float8(const SkinnyArgs& args, gpuStream_t stream);
// FP8 with scales of groups.
gpuError_t launch_skinny_groups(const SkinnyArgs& args, gpuStream_t stream);

}  // namespace atom::ops::device
