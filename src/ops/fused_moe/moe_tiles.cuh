// Inside fused_moe for many tokens on Hopper: tiles of an expert's rows of x by some of its
// matrix's rows, and the order in which blocks take them.
#pragma once

#include "ops/device/async_copy.cuh"
#include "ops/device/bulk_copy.cuh"
#include "ops/device/matrix_units.cuh"
#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/moe_device.cuh"
#include "ops/fused_moe/moe_many.h"

namespace atom::ops::device {

struct MoeTile {
  int expert, column_tile;
  int first_row, end_row;  // in the order of experts: the tile's first, the expert's end
};

// Tiles in the order in which blocks take them. The tiles of an expert's rows that meet the same
// rows of its matrix follow each other. By whole warps, whose lanes have the begins of 32 experts.
class TileList {
 public:
  // Tiles have `tile_rows` rows, as those of `tiles` have.
  __device__ TileList(const FusedMoeGpuScratch& tiles,
                      int num_experts,
                      int num_column_tiles,
                      int tile_rows)
      : tiles_(tiles),
        num_experts_(num_experts),
        num_column_tiles_(num_column_tiles),
        tile_rows_(tile_rows),
        size_(gpu_load_from_l2(tiles.tile_begins + num_experts) * num_column_tiles) {
    load();
  }

  __device__ int size() const { return size_; }

  // Of ascending places.
  __device__ MoeTile at(int place) {
    int count = num_ended(place);
    while (count == kWarpSize) {
      before_ = gpu_shuffle(tile_end_, kWarpSize - 1);
      first_expert_ += kWarpSize;
      load();
      count = num_ended(place);
    }
    const int end = gpu_shuffle(tile_end_, count);
    const int last_end = gpu_shuffle(tile_end_, max(count - 1, 0));
    const int begin = count > 0 ? last_end : before_;
    const int local = place - begin * num_column_tiles_, num_row_tiles = end - begin;
    const int first_row = gpu_shuffle(row_begin_, count);
    return {.expert = first_expert_ + count,
            .column_tile = local / num_row_tiles,
            .first_row = first_row + local % num_row_tiles * tile_rows_,
            .end_row = gpu_shuffle(row_end_, count)};
  }

  // The first row of the expert whose tile at() gave last.
  __device__ int row_begin_of(int expert) const {
    return gpu_shuffle(row_begin_, expert - first_expert_);
  }

 private:
  // Of the experts at hand, those all of whose tiles are before a place.
  __device__ int num_ended(int place) const {
    return __popc(gpu_lanes_where(tile_end_ * num_column_tiles_ <= place));
  }

  __device__ void load() {
    const int expert = first_expert_ + threadIdx.x % kWarpSize;
    tile_end_ = gpu_load_from_l2(tiles_.tile_begins + min(expert + 1, num_experts_));
    row_begin_ = gpu_load_from_l2(tiles_.row_begins + min(expert, num_experts_));
    row_end_ = gpu_load_from_l2(tiles_.row_begins + min(expert + 1, num_experts_));
  }

  const FusedMoeGpuScratch& tiles_;
  const int num_experts_, num_column_tiles_, tile_rows_, size_;
  int first_expert_ = 0, before_ = 0;  // the expert of the first lane, and the tiles before it
  int tile_end_, row_begin_, row_end_;
};

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
