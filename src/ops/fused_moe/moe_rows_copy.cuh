// Inside fused_moe by rows of matrices on Hopper: the thread that copies.
#pragma once

#include "ops/fused_moe/moe_exponents_copy.cuh"
#include "ops/fused_moe/moe_rows_stage.cuh"

namespace atom::ops::device::rows {

template <typename W, int kTokens, bool kGated>
class Copier {
 public:
  __device__ Copier(const MoeRowsArgs& args, const Shared<W, kTokens>& shared)
      : args_(args), shared_(shared), keep_(keep_policy()) {}

  // What fits the stages of the first tile's matrix, before x is there.
  __device__ void begin(const MoeTile& tile) {
    num_begun_ = min(args_.num_stages, args_.num_chunks);
    for (int chunk = 0; chunk < num_begun_; ++chunk) {
      const uint32_t full = shared_.full(chunk);
      arrive_expecting(full, kStageSize<W, kTokens>);
      copy_matrix(tile, chunk, chunk, full);
    }
  }

  __device__ void run(const MoeTile& tile) {
    if (args_.exponents_size > 0) copy_tile_exponents(tile);
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      const uint32_t full = shared_.full(stage_.index);
      if (chunk >= num_begun_) {
        wait_for(shared_.empty(stage_.index), stage_.parity ^ 1);
        arrive_expecting(full, kStageSize<W, kTokens>);
        copy_matrix(tile, chunk, stage_.index, full);
      }
#pragma unroll
      for (int panel = 0; panel < kPanels<W>; ++panel) {
        copy_box(shared_.x(stage_.index, panel),
                 &args_.x,
                 (chunk * kPanels<W> + panel) * (kPanelSize / 2),
                 tile.first_row,
                 full,
                 keep_);
      }
      stage_.advance(args_.num_stages);
    }
    num_begun_ = 0;
  }

 private:
  __device__ void copy_matrix(const MoeTile& tile, int chunk, int stage, uint32_t full) const {
    const int first = tile.expert * args_.num_rows;
    const uint32_t matrix = shared_.matrix(stage);
    constexpr int kElementSize = Chunk<W>::kFromRegisters ? 1 : 2;
    const int column = chunk * Chunk<W>::kRowSize / kElementSize;
    // From shared memory the matrix units take gates and ups by turns, which registers put right.
    constexpr bool kByTurns = kGated && !Chunk<W>::kFromRegisters;
    constexpr int kRows = kByTurns ? kPairRows : kHalfRows<W>;
#pragma unroll 1
    for (int i = 0; i < kHalfRows<W> / kRows; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        copy_box(matrix + (2 * i + half) * kRows * Chunk<W>::kRowSize,
                 &args_.matrices,
                 column,
                 first + first_row_of<W, kGated>(args_, tile.column_tile, half) + i * kRows,
                 full,
                 keep_);
      }
    }
  }

  __device__ void copy_tile_exponents(const MoeTile& tile) {
    const auto first_row = [&](int half) {
      return first_row_of<W, kGated>(args_, tile.column_tile, half);
    };
    copy_exponents<kHalfRows<W>, kExponentBuffers>(
        args_, shared_, tile.expert, first_row, keep_, buffer_);
  }

  const MoeRowsArgs& args_;
  const Shared<W, kTokens>& shared_;
  const uint64_t keep_;
  StageCursor stage_, buffer_;
  int num_begun_ = 0;  // of the first tile's chunks
};

}  // namespace atom::ops::device::rows
