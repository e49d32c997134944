// Inside the linear for few rows on Hopper: the launches that the file of each element type
// defines.
#pragma once

#include <cuda.h>

#include "ops/linear/linear_skinny_cuda.h"

namespace atom::ops::device {

struct SkinnyArgs {
  // Of [panels, rows, panel] where panels are whole, else of [1, rows, row]. A box has the rows of
  // a tile (with SiLU of half a tile), or x_rows, and box_panels panels.
  CUtensorMap weight, x;
  LinearStreamParams params;
  int half_rows;      // of a tile, that one warpgroup multiplies: a multiple of 8, to 128
  int half_stride;    // weight rows from a tile's first half to its second
  int x_rows;         // num_rows, rounded up to 8
  int num_panels;     // of a stage
  int box_panels;     // num_panels or 1
  bool whole_panels;  // of a row
  int num_stages;
  int num_tiles;
  int num_clusters;
  int num_chunks;  // of k, a stage each
  int log_splits;
  bool takes_turns;    // a warpgroup multiplies whole tiles of every other stage, else half of each
  int num_parts;       // of a tile's sums, from one block
  bool reuses_stages;  // for the sums, when all stages have been used
};

// Shared memory: the stages, then sums, then what belongs to weight rows, then barriers.
struct SkinnyLayout {
  int stage_size, sums, rows, rows_size, x_scales, barriers, size;

  __host__ __device__ explicit SkinnyLayout(const SkinnyArgs& args) {
    constexpr int kPanelSize = 128, kBarrierSize = 8;
    const int tile_rows = 2 * args.half_rows;
    stage_size = args.num_panels * (tile_rows + args.x_rows) * kPanelSize;
    const int end_of_stages = args.num_stages * stage_size;
    const int sums_size = args.num_parts * tile_rows * args.x_rows * int{sizeof(float)};
    sums = args.reuses_stages ? 0 : end_of_stages;
    rows = sums + sums_size > end_of_stages ? sums + sums_size : end_of_stages;
    rows_size = 2 * tile_rows * int{sizeof(float)};
    x_scales = rows + 2 * rows_size;
    barriers = x_scales + args.x_rows * int{sizeof(float)};
    const int end = barriers + (2 * args.num_stages + 1) * kBarrierSize;
    const int end_of_reads = end_of_stages + overread(args) * kPanelSize;
    size = end > end_of_reads ? end : end_of_reads;
  }

  // Rows of a panel that the matrix units read past the last stage: they read 64 weight rows and a
  // power of two of rows of x.
  static __host__ __device__ int overread(const SkinnyArgs& args) {
    const int rows = args.takes_turns ? 2 * args.half_rows : args.half_rows;  // a warpgroup's
    const int of_weight = (rows + 63) / 64 * 64 - rows - args.num_panels * args.x_rows;
    int columns = 8;
    while (columns < args.x_rows) columns *= 2;
    const int of_x = columns - args.x_rows;
    return of_weight > of_x ? of_weight : of_x;
  }
};

gpuError_t launch_skinny_bfloat16(const SkinnyArgs& args, gpuStream_t stream);
gpuError_t launch_skinny_float16(const SkinnyArgs& args, gpuStream_t stream);
gpuError_t launch_skinny_float8(const SkinnyArgs& args, gpuStream_t stream);

}  // namespace atom::ops::device
