// Inside fused_moe by rows of matrices on Hopper: shared memory, a block's tiles and the rows that
// a lane has of one.
#pragma once

#include "ops/fused_moe/moe_rows_sizes.cuh"

namespace atom::ops::device::rows {

// Stages come first, because what is swizzled has to lie at multiples of 1024 bytes.
template <typename W, int kTokens>
class Shared {
 public:
  __device__ Shared(const MoeRowsArgs& args, uint8_t* memory)
      : base_(shared_address(memory)),
        num_stages_(args.num_stages),
        exponents_size_(args.exponents_size),
        rest_(base_ + args.num_stages * kStageSize<W, kTokens>) {}

  __device__ uint32_t matrix(int stage) const { return base_ + stage * kStageSize<W, kTokens>; }
  __device__ uint32_t x(int stage, int panel) const {
    return matrix(stage) + kMatrixSize<W> + panel * kTokens * kPanelSize;
  }
  __device__ uint32_t full(int stage) const { return rest_ + 8 * stage; }
  __device__ uint32_t empty(int stage) const { return full(kMaxStages + stage); }
  __device__ uint32_t exponents_full(int buffer) const { return full(2 * kMaxStages + buffer); }
  __device__ uint32_t exponents_empty(int buffer) const {
    return exponents_full(kExponentBuffers + buffer);
  }
  __device__ uint32_t output(int warp) const {
    return rest_ + kBarriersSize + warp * kOutputSizeOf<W>;
  }
  __device__ uint32_t exponents(int buffer) const {
    return output(kConsumerWarps<W>) + buffer * exponents_size_;
  }

  // By one thread, before a barrier of the block.
  __device__ void init_barriers() const {
    for (int i = 0; i < num_stages_; ++i) {
      init_barrier(full(i), 1);
      init_barrier(empty(i), kConsumerWarps<W>);
    }
    for (int i = 0; i < kExponentBuffers; ++i) {
      init_barrier(exponents_full(i), 1);
      init_barrier(exponents_empty(i), kConsumerWarps<W>);
    }
    publish_barriers();
  }

 private:
  static_assert(8 * 2 * (kMaxStages + kExponentBuffers) <= kBarriersSize);
  const uint32_t base_;
  const int num_stages_, exponents_size_;
  const uint32_t rest_;
};

// The first row of the matrix that half of a tile has.
template <typename W, bool kGated>
__device__ inline int first_row_of(const MoeRowsArgs& args, int column_tile, int half) {
  if (kGated && !args.call.activation.is_interleaved) {
    return half * args.call.intermediate_size + column_tile * kHalfRows<W>;
  }
  return column_tile * kTileRows<W> + half * kHalfRows<W>;
}

// Of a lane's products of 64 rows: of row g of its warp's 16 and of row g + 8. With the activation
// these are a gate and its up.
template <typename W, bool kGated>
struct LaneRows {
  static constexpr int kBlocks = Chunk<W>::kBlocks;
  int row[kBlocks][2];  // of the tile's, by halves
  // With the activation, of the tile's, which has the outputs of a chunk of the second matrix: in
  // an order by which those of a warp are at neighboring places of it.
  int output[kBlocks];
  // Whether the first one is the up. Of interleaved rows, of which two fill all banks, every other
  // lane has the up first, so that lanes side by side read different banks, as those of images do
  // anyway.
  bool is_swapped;

  // Of the consumers' warps.
  static __device__ LaneRows of(bool is_interleaved) {
    const int warp = threadIdx.x / kWarpSize, g = threadIdx.x % kWarpSize / 4;
    LaneRows rows;
    constexpr bool kSwaps = kGated && Chunk<W>::kFromRegisters && !Chunk<W>::kImages;
    rows.is_swapped = kSwaps && is_interleaved && g % 2 == 1;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const int first = warp * kBlocks + b;
      rows.output[b] = Chunk<W>::column_at(first * 8 + g);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if constexpr (kGated) {
          rows.row[b][i] = is_interleaved
                               ? 2 * rows.output[b] + (i ^ static_cast<int>(rows.is_swapped))
                               : rows.output[b] + i * kHalfRows<W>;
        } else {
          rows.row[b][i] = first * 16 + i * 8 + g;
        }
      }
    }
    return rows;
  }
};

// visit(tile) for all tiles of the block, by whole warps. end_row is the tile's.
template <typename W, int kTokens, typename Visit>
__device__ void for_tiles(const MoeRowsArgs& args, Visit&& visit) {
  TileList list(args.tiles(), args.call.num_experts, args.num_column_tiles, kTokens);
  for (int i = blockIdx.x; i < list.size(); i += gridDim.x) visit(list.at(i));
}

}  // namespace atom::ops::device::rows
