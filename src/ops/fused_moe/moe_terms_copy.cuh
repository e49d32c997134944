// Inside fused_moe by terms in FP8: the thread that copies.
#pragma once

#include "ops/fused_moe/moe_exponents_copy.cuh"
#include "ops/fused_moe/moe_terms_stage.cuh"

namespace atom::ops::device::terms {

template <int kTokens, bool kGated>
class Copier {
 public:
  __device__ Copier(const MoeTermsArgs& args, const Shared<kTokens, kGated>& shared)
      : args_(args), shared_(shared), keep_(keep_policy()) {}

  // What fits the stages of the first tile's matrix, before x is there.
  __device__ void begin(const MoeTile& tile) {
    num_begun_ = min(args_.num_stages, args_.num_chunks);
    for (int chunk = 0; chunk < num_begun_; ++chunk) {
      const uint32_t full = shared_.full(chunk);
      arrive_expecting(full, stage_bytes(tile));
      copy_matrix(tile, chunk, chunk, full);
    }
  }

  __device__ void run(const MoeTile& tile) {
    copy_tile_exponents(tile);
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      const uint32_t full = shared_.full(stage_.index);
      if (chunk >= num_begun_) {
        wait_for(shared_.empty(stage_.index), stage_.parity ^ 1);
        arrive_expecting(full, stage_bytes(tile));
        copy_matrix(tile, chunk, stage_.index, full);
      }
      for (int i = 0; i < token_units(tile); ++i) copy_unit(tile, chunk, i, full);
      stage_.advance(args_.num_stages);
    }
    num_begun_ = 0;
  }

 private:
  static __device__ int stage_bytes(const MoeTile& tile) {
    return kMatrixSize +
           token_units(tile) * (kPanels * kUnitSize + (kGated ? 0 : kUnit8 * kScalesRowSize));
  }

  __device__ void copy_matrix(const MoeTile& tile, int chunk, int stage, uint32_t full) const {
    const int count = is_whole<kGated>(args_.call) ? 1 : 2;
    for (int i = 0; i < count; ++i) {
      const int row =
          tile.expert * args_.num_rows + first_row_of<kGated>(args_, tile.column_tile, i);
      copy_box(shared_.matrix(stage) + i * kHalfRows * kRowSize,
               &args_.matrices,
               chunk * kRowSize,
               row,
               full,
               keep_);
    }
  }

  // Eight tokens' terms of a chunk, and their scales.
  __device__ void copy_unit(const MoeTile& tile, int chunk, int unit, uint32_t full) const {
    const int row = tile.first_row + unit * kUnit8;
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      copy_box(shared_.x(stage_.index, panel) + unit * kUnitSize,
               &args_.x,
               chunk * kChunkColumns + panel * kPanelColumns,
               row,
               0,
               full,
               keep_);
    }
    if constexpr (!kGated) {
      copy_box(shared_.x_scales(stage_.index) + unit * kUnit8 * kScalesRowSize,
               &args_.x_scales,
               chunk * kChunkBlocks,
               row,
               full,
               keep_);
    }
  }

  __device__ void copy_tile_exponents(const MoeTile& tile) {
    const auto first_row = [&](int half) {
      return first_row_of<kGated>(args_, tile.column_tile, half);
    };
    copy_exponents<kHalfRows, kExponentBuffers>(
        args_, shared_, tile.expert, first_row, keep_, buffer_);
  }

  const MoeTermsArgs& args_;
  const Shared<kTokens, kGated>& shared_;
  const uint64_t keep_;
  StageCursor stage_, buffer_;
  int num_begun_ = 0;  // of the first tile's chunks
};

}  // namespace atom::ops::device::terms
