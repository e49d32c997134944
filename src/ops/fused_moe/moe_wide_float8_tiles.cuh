// Inside fused_moe by wide tiles in FP8 on Hopper: the order of tiles, and what is where in one.
#pragma once

#include "ops/fused_moe/moe_wide_float8_stage.cuh"

namespace atom::ops::device::wide8 {

struct Tile {
  int expert, column_tile;
  int first_row, end_row;  // in the order of experts: the tile's first, the expert's end
  int units;               // of tokens, for both blocks
};

// The tiles of the block in their order, by whole warps. A tile may have no rows.
class TileWalk {
 public:
  __device__ explicit TileWalk(const MoeWideFloat8Args& args)
      : list_(args.scratch.shared,
              args.call.num_experts,
              args.num_column_tiles,
              kClusterSize * kTileTokens),
        place_(blockIdx.x / kClusterSize) {}

  __device__ bool has_more() const { return place_ < list_.size(); }
  __device__ Tile next() {
    const MoeTile tile = list_.at(place_);
    place_ += gridDim.x / kClusterSize;
    const int begin = list_.row_begin_of(tile.expert);
    const PairShare share =
        share_of((tile.first_row - begin) / (kClusterSize * kTileTokens), tile.end_row - begin);
    // The compiler knows that a warp has one.
    const int units = __shfl_sync(0xffffffffu, share.units, 0);
    return {.expert = tile.expert,
            .column_tile = tile.column_tile,
            .first_row = begin + share.first + cluster_rank() * units * kTokenUnit,
            .end_row = tile.end_row,
            .units = units};
  }

 private:
  TileList list_;
  int place_;
};

// visit(tile) for all tiles of the block.
template <typename Visit>
__device__ __forceinline__ void for_tiles(const MoeWideFloat8Args& args, Visit&& visit) {
  for (TileWalk walk(args); walk.has_more();) visit(walk.next());
}

// Where a consumer's lane finds four scales at once: those of the tokens that it has of 16.
__device__ inline int place_of_token(int token) {
  return token / 16 * 16 + token % 8 / 2 * 4 + token / 8 % 2 * 2 + token % 2;
}

// The first row of the matrix that one of its two parts with a scale of their own has: gates and
// ups, or a half of the rows.
template <bool kGated>
__device__ inline int first_row_of(const MoeWideFloat8Args& args, const Tile& tile, int part) {
  return kGated ? part * (args.num_rows / 2) + tile.column_tile * kBlockRows
                : (tile.column_tile * 2 + part) * kBlockRows;
}

}  // namespace atom::ops::device::wide8
