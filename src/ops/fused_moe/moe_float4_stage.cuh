// Inside fused_moe for many tokens by experts in MXFP4 on Hopper: shared memory, the order of k,
// the rows that threads have of a tile, and the thread that copies.
#pragma once

#include <cuda.h>

#include "ops/fused_moe/moe_float4.h"
#include "ops/fused_moe/moe_tiles.cuh"

namespace atom::ops::device::moe4 {

constexpr int kTileRows = 256;  // of a matrix; with the activation 128 gates and their ups
constexpr int kHalfRows = kTileRows / 2;
constexpr int kMatrixRowSize = kMoeChunkColumns / 2;  // bytes of a row in a stage
constexpr int kMatrixSize = kTileRows * kMatrixRowSize;
constexpr int kPanelSize = 128;  // bytes of a row of x in a copy
constexpr int kPanels = kMoeChunkColumns * 2 / kPanelSize;
constexpr int kWarpgroupSize = 128;
constexpr int kNumConsumers = 2 * kWarpgroupSize, kNumThreads = kNumConsumers + kWarpgroupSize;
constexpr int kConsumerWarps = kNumConsumers / kWarpSize;
constexpr int kMaxStages = 8;
constexpr int kExponentBuffers = 2;
constexpr int kBarriersSize = 256;
// Of a warp: outputs of 16 tokens, or of 8, on their way.
constexpr int kGatedRowStride = 32 + 16, kRowStride = 64 + 16;
constexpr int kOutputSize = 16 * kGatedRowStride;
static_assert(8 * kRowStride <= kOutputSize);

struct MoeFloat4Args {
  CUtensorMap x;         // [rows, padded columns], boxes of 128 bytes of a tile's tokens
  CUtensorMap matrices;  // [all experts' rows, columns / 2 bytes], of 64 bytes of half a tile
  FusedMoeGpuCall call;
  MoeFloat4Scratch scratch;
  ExpertMatrices own;  // the same matrices
  int num_rows;        // of a matrix
  int num_outputs;     // of a row: those, or half of them
  int num_column_tiles;
  int num_chunks;
  int row_exponents;  // bytes
  int num_stages;
  int exponents_size;  // of a tile, in shared memory

  __device__ const FusedMoeGpuScratch& tiles() const { return scratch.shared; }
};

// Bytes of shared memory besides stages.
__host__ __device__ inline int fixed_size(int exponents_size) {
  return kBarriersSize + kConsumerWarps * kOutputSize + kExponentBuffers * exponents_size;
}

constexpr int stage_size(int num_tokens) {
  return kMatrixSize + num_tokens * kPanels * kPanelSize;
}

// Stages come first, because rows of x have to lie at multiples of 1024 bytes.
template <int kTokens>
class Shared {
 public:
  __device__ Shared(const MoeFloat4Args& args, uint8_t* memory)
      : base_(shared_address(memory)),
        num_stages_(args.num_stages),
        exponents_size_(args.exponents_size),
        rest_(base_ + args.num_stages * stage_size(kTokens)) {}

  __device__ uint32_t matrix(int stage) const { return base_ + stage * stage_size(kTokens); }
  __device__ uint32_t x(int stage, int panel) const {
    return matrix(stage) + kMatrixSize + panel * kTokens * kPanelSize;
  }
  __device__ uint32_t full(int stage) const { return rest_ + 8 * stage; }
  __device__ uint32_t empty(int stage) const { return full(kMaxStages + stage); }
  __device__ uint32_t exponents_full(int buffer) const { return full(2 * kMaxStages + buffer); }
  __device__ uint32_t exponents_empty(int buffer) const {
    return exponents_full(kExponentBuffers + buffer);
  }
  __device__ uint32_t output(int warp) const { return rest_ + kBarriersSize + warp * kOutputSize; }
  __device__ uint32_t exponents(int buffer) const {
    return output(kConsumerWarps) + buffer * exponents_size_;
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

 private:
  static_assert(8 * 2 * (kMaxStages + kExponentBuffers) <= kBarriersSize);
  const uint32_t base_;
  const int num_stages_, exponents_size_;
  const uint32_t rest_;
};

// The first row of the matrix that half of a tile has.
template <bool kGated>
__device__ inline int first_row_of(const MoeFloat4Args& args, int column_tile, int half) {
  if (kGated && !args.call.activation.is_interleaved) {
    return half * args.call.intermediate_size + column_tile * kHalfRows;
  }
  return column_tile * kTileRows + half * kHalfRows;
}

// A lane has 16 adjacent bytes of a row's 64 of a chunk, from which it makes its part of what eight
// products of 16 columns take: two pairs of columns each. So place p of a chunk of x is column
// column_at(p): product p / 16, pair p / 8 % 2 of lane p / 2 % 4. RowFormat<Float4> makes pairs of
// columns that are 4 apart.
__host__ __device__ constexpr int column_at(int place) {
  const int product = place / 16, pair = product % 2 * 2 + place / 8 % 2;
  return place / 2 % 4 * 32 + product / 2 * 8 + pair + place % 2 * 4;
}

// By one thread.
template <int kTokens, bool kGated>
__device__ void copy_tiles(const MoeFloat4Args& args, const Shared<kTokens>& shared) {
  const uint64_t keep = keep_policy();
  StageCursor stage, buffer;
  const auto copy_exponents = [&](const MoeTile& tile) {
    const uint32_t full = shared.exponents_full(buffer.index);
    wait_for(shared.exponents_empty(buffer.index), buffer.parity ^ 1);
    int sizes[2];
    for (int half = 0; half < 2; ++half) {
      const int rows = args.num_rows - first_row_of<kGated>(args, tile.column_tile, half);
      sizes[half] = max(0, min(kHalfRows, rows)) * args.row_exponents;
    }
    arrive_expecting(full, sizes[0] + sizes[1]);
    for (int half = 0; half < 2; ++half) {
      if (sizes[half] == 0) continue;
      const int row = first_row_of<kGated>(args, tile.column_tile, half);
      copy_bulk(shared.exponents(buffer.index) + half * kHalfRows * args.row_exponents,
                args.own.exponents + tile.expert * args.own.exponent_stride +
                    int64_t{row} * args.row_exponents,
                sizes[half],
                full,
                keep);
    }
    buffer.advance(kExponentBuffers);
  };
  for_tiles(
      args,
      [&](const MoeTile& tile) {
        copy_exponents(tile);
        const int first = tile.expert * args.num_rows;
        for (int chunk = 0; chunk < args.num_chunks; ++chunk) {
          const uint32_t full = shared.full(stage.index);
          wait_for(shared.empty(stage.index), stage.parity ^ 1);
          arrive_expecting(full, stage_size(kTokens));
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            copy_box(shared.matrix(stage.index) + half * kHalfRows * kMatrixRowSize,
                     &args.matrices,
                     chunk * kMatrixRowSize,
                     first + first_row_of<kGated>(args, tile.column_tile, half),
                     full,
                     keep);
          }
#pragma unroll
          for (int panel = 0; panel < kPanels; ++panel) {
            copy_box(shared.x(stage.index, panel),
                     &args.x,
                     (chunk * kPanels + panel) * (kPanelSize / 2),
                     tile.first_row,
                     full,
                     keep);
          }
          stage.advance(args.num_stages);
        }
      },
      kTokens);
}

}  // namespace atom::ops::device::moe4
