// Inside fused_moe for many tokens on Hopper: tiles of an expert's rows of x by some of its
// matrix's rows, and the order in which blocks take them.
#pragma once

#include "ops/device/async_copy.cuh"
#include "ops/device/bulk_copy.cuh"
#include "ops/device/matrix_units.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/moe_device.cuh"
#include "ops/fused_moe/moe_wgmma.h"

namespace atom::ops::device {

struct MoeTile {
  int expert, column_tile;
  int first_row, end_row;  // in the order of experts: the tile's first, the expert's end
};

// visit(tile) for all tiles of the block. The tiles of an expert's rows that meet the same rows of
// its matrix follow each other. Tiles have `tile_rows` rows, as those of args.tiles() have.
template <typename Args, typename Visit>
__device__ void for_tiles(const Args& args, Visit&& visit, int tile_rows = kMoeTileRows) {
  const int32_t* tile_begins = args.tiles().tile_begins;
  const int32_t* row_begins = args.tiles().row_begins;
  const int num_experts = args.call.num_experts;
  const int num_tiles = gpu_load_from_l2(tile_begins + num_experts) * args.num_column_tiles;
  int expert = 0, begin = 0, end = 0;
  for (int i = blockIdx.x; i < num_tiles; i += gridDim.x) {
    while (i >= end * args.num_column_tiles) {
      begin = end;
      end = gpu_load_from_l2(tile_begins + ++expert);
    }
    const int local = i - begin * args.num_column_tiles, num_row_tiles = end - begin;
    const int row_tile = local % num_row_tiles;
    visit(MoeTile{.expert = expert - 1,
                  .column_tile = local / num_row_tiles,
                  .first_row = gpu_load_from_l2(row_begins + expert - 1) + row_tile * tile_rows,
                  .end_row = gpu_load_from_l2(row_begins + expert)});
  }
}

// store_matrices() of transposed ones.
__device__ inline void store_transposed(uint32_t address, const uint32_t (&matrices)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(matrices[0]),
      "r"(matrices[1]),
      "r"(matrices[2]),
      "r"(matrices[3])
      : "memory");
}

}  // namespace atom::ops::device
