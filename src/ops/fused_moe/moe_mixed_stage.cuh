// Inside fused_moe by MXFP4 and FP8: shared memory, a block's tiles and the rows that a lane has of
// one.
#pragma once

#include "ops/fused_moe/moe_mixed_sizes.cuh"

namespace atom::ops::device::mixed {

// Stages come first, because what is swizzled has to lie at multiples of 1024 bytes.
template <bool kGated>
class Shared {
 public:
  static constexpr int kStages = kNumStages<kGated>;

  __device__ explicit Shared(uint8_t* memory) : base_(shared_address(memory)) {}

  __device__ uint32_t matrix(int stage) const { return base_ + stage * kStageSize; }
  __device__ uint32_t x(int stage) const { return matrix(stage) + kMatrixSize; }
  // At a multiple of 256 bytes.
  __device__ uint32_t tables() const { return matrix(kStages); }
  __device__ uint32_t scales(int stage) const {
    return tables() + kTablesSize + stage * kScalesSize;
  }
  __device__ uint32_t output(int group) const {
    return scales(kStages) + group * kOutputSize<kGated>;
  }
  __device__ uint32_t places(int buffer) const { return output(kGroups) + buffer * kPlacesSize; }
  // What a row's sums are to be multiplied by.
  __device__ uint32_t units(int buffer) const {
    return places(kPlaceBuffers) + buffer * kUnitsSize;
  }
  __device__ uint32_t full(int stage) const { return units(kPlaceBuffers) + 8 * stage; }
  __device__ uint32_t empty(int stage) const { return full(kMaxStages + stage); }
  __device__ uint32_t places_full(int buffer) const { return full(2 * kMaxStages + buffer); }
  __device__ uint32_t places_empty(int buffer) const { return places_full(kPlaceBuffers + buffer); }

  // By one thread.
  __device__ void init_barriers() const {
    for (int i = 0; i < kStages; ++i) {
      // Who copies the matrix and tokens, and the lanes that copy scales.
      init_barrier(full(i), 1 + kWarpSize);
      init_barrier(empty(i), kConsumerWarps);
    }
    for (int i = 0; i < kPlaceBuffers; ++i) {
      init_barrier(places_full(i), kExponentWarps);
      init_barrier(places_empty(i), kConsumerWarps);
    }
    publish_barriers();
  }

 private:
  static_assert(8 * 2 * (kMaxStages + kPlaceBuffers) <= kBarriersSize);
  static_assert(kStages >= 3 && kStages <= kMaxStages);
  const uint32_t base_;
};

struct Tile {
  int expert, first_matrix_row;
  int first_row, end_row;  // of tokens, in the order of experts: the tile's first, its end
};

__device__ inline int token_units(const Tile& tile) {
  return (tile.end_row - tile.first_row + kUnitTokens - 1) / kUnitTokens;
}

// visit(tile) for all tiles of the block, by whole warps. An expert's tiles share its rows evenly.
template <typename Visit>
__device__ __forceinline__ void for_tiles(const MoeMixedArgs& args, Visit&& visit) {
  TileList list(args.scratch.shared, args.call.num_experts, args.num_column_tiles, kTokens);
  for (int i = blockIdx.x; i < list.size(); i += gridDim.x) {
    const MoeTile tile = list.at(i);
    const int begin = list.row_begin_of(tile.expert);
    const RowShare share =
        share_of<kTokens, kUnitTokens>((tile.first_row - begin) / kTokens, tile.end_row - begin);
    visit(Tile{.expert = tile.expert,
               .first_matrix_row = tile.column_tile * kTileRows,
               .first_row = begin + share.first,
               .end_row = begin + share.end});
  }
}

// The tile's rows that lane (g, t) of a warp has in the first and the second eight of its product's
// sixteen. With the activation these are a gate and its up, of output 8 warp + g; half of the lanes
// have the up first, so that lanes read different banks.
struct LaneRows {
  int row[2];
  bool is_swapped;

  template <bool kGated>
  static __device__ LaneRows of(int g) {
    const int warp = threadIdx.x / kWarpSize;
    if constexpr (!kGated) return {{warp * 16 + g, warp * 16 + 8 + g}, false};
    const bool is_swapped = g >= 4;
    const int first = 2 * (warp * 8 + g) + (is_swapped ? 1 : 0);
    return {{first, first ^ 1}, is_swapped};
  }
};

}  // namespace atom::ops::device::mixed
