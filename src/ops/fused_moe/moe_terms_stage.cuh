// Inside fused_moe by terms in FP8: shared memory, a block's tiles and the rows that a lane has of
// one.
#pragma once

#include "ops/fused_moe/moe_terms_sizes.cuh"

namespace atom::ops::device::terms {

// Stages come first, because what is swizzled has to lie at multiples of 1024 bytes.
template <int kTokens, bool kGated>
class Shared {
 public:
  __device__ Shared(const MoeTermsArgs& args, uint8_t* memory)
      : base_(shared_address(memory)),
        num_stages_(args.num_stages),
        exponents_size_(args.exponents_size),
        rest_(base_ + args.num_stages * kStageSize<kTokens, kGated>) {}

  __device__ uint32_t matrix(int stage) const {
    return base_ + stage * kStageSize<kTokens, kGated>;
  }
  __device__ uint32_t x(int stage, int panel) const {
    return matrix(stage) + kMatrixSize + panel * (kTokens / kUnit8) * kUnitSize;
  }
  __device__ uint32_t x_scales(int stage) const { return x(stage, kPanels); }
  __device__ uint32_t full(int stage) const { return rest_ + 8 * stage; }
  __device__ uint32_t empty(int stage) const { return full(kMaxStages + stage); }
  __device__ uint32_t exponents_full(int buffer) const { return full(2 * kMaxStages + buffer); }
  __device__ uint32_t exponents_empty(int buffer) const {
    return exponents_full(kExponentBuffers + buffer);
  }
  // Of a warpgroup, by warps.
  __device__ uint32_t maxima(int buffer, int group) const {
    return rest_ + kBarriersSize + (buffer * kGroups + group) * (kMaximaSize / 2 / kGroups);
  }
  __device__ uint32_t exponents(int buffer) const {
    return rest_ + kBarriersSize + kMaximaSize + buffer * exponents_size_;
  }

  // By one thread, before a barrier of the block.
  __device__ void init_barriers() const {
    for (int i = 0; i < num_stages_; ++i) {
      init_barrier(full(i), 1);
      init_barrier(empty(i), kConsumerWarps);
    }
    for (int i = 0; i < kExponentBuffers; ++i) {
      init_barrier(exponents_full(i), 1);
      init_barrier(exponents_empty(i), kConsumerWarps);
    }
    publish_barriers();
  }

  // Of exponents, because those behind a row's end are multiplied with zeros. By all threads.
  __device__ void clear_exponents() const {
    for (int i = threadIdx.x * kVectorSize; i < kExponentBuffers * exponents_size_;
         i += kThreads * kVectorSize) {
      store_shared(exponents(0) + i, uint4{});
    }
    fence_before_copies();
  }

 private:
  static_assert(8 * 2 * (kMaxStages + kExponentBuffers) <= kBarriersSize);
  const uint32_t base_;
  const int num_stages_, exponents_size_;
  const uint32_t rest_;
};

// Whether the rows of a tile follow each other.
template <bool kGated>
__host__ __device__ inline bool is_whole(const FusedMoeGpuCall& call) {
  return !kGated || call.activation.is_interleaved;
}

// The first row of the matrix that half of a tile has.
template <bool kGated>
__device__ inline int first_row_of(const MoeTermsArgs& args, int column_tile, int half) {
  if (!is_whole<kGated>(args.call)) {
    return half * args.call.intermediate_size + column_tile * kHalfRows;
  }
  return column_tile * kTileRows + half * kHalfRows;
}

// The tile's rows that lane (g, t) of a warp has in the first and the second eight of its product's
// sixteen. With the activation these are a gate and its up, of output 8 warp + g; of interleaved
// ones half of the lanes have the up first, so that lanes read different banks, which those of
// images are in anyway.
struct LaneRows {
  int row[2];
  bool is_swapped;

  template <bool kGated, bool kImages>
  static __device__ LaneRows of(bool is_interleaved, int g) {
    const int warp = threadIdx.x / kWarpSize, output = warp * 8 + g;
    if constexpr (!kGated) return {{warp * 16 + g, warp * 16 + 8 + g}, false};
    if (!is_interleaved) return {{output, output + kHalfRows}, false};
    const bool is_swapped = !kImages && g >= 4;
    const int first = 2 * output + (is_swapped ? 1 : 0);
    return {{first, first ^ 1}, is_swapped};
  }
};

// visit(tile) for all tiles of the block, by whole warps. end_row is the tile's. An expert's tiles
// of more than eight tokens share them evenly.
template <int kTokens, typename Visit>
__device__ void for_tiles(const MoeTermsArgs& args, Visit&& visit) {
  TileList list(args.tiles(), args.call.num_experts, args.num_column_tiles, kTokens);
  for (int i = blockIdx.x; i < list.size(); i += gridDim.x) {
    MoeTile tile = list.at(i);
    if constexpr (kTokens == kUnit8) {
      tile.end_row = min(tile.end_row, tile.first_row + kTokens);
    } else {
      const int begin = list.row_begin_of(tile.expert);
      const RowShare share =
          share_of<kTokens, kUnit8>((tile.first_row - begin) / kTokens, tile.end_row - begin);
      tile.first_row = begin + share.first;
      tile.end_row = begin + share.end;
    }
    visit(tile);
  }
}

// Of a tile, at least one.
__device__ inline int token_units(const MoeTile& tile) {
  return max((tile.end_row - tile.first_row + kUnit8 - 1) / kUnit8, 1);
}

}  // namespace atom::ops::device::terms
