// Inside fused_moe by terms in FP8: the thread that copies.
#pragma once

#include "ops/fused_moe/moe_exponents_copy.cuh"
#include "ops/fused_moe/moe_terms_stage.cuh"

namespace atom::ops::device::terms {

template <int kTokens, bool kGated, bool kImages>
class Copier {
 public:
  __device__ Copier(const MoeTermsArgs& args, const Shared<kTokens, kGated>& shared)
      : args_(args), shared_(shared), keep_(keep_policy()) {}

  // What fits the stages of the first tile's matrix, before x is there.
  __device__ void begin(const MoeTile& tile) {
    find_runs(tile);
    num_begun_ = min(args_.num_stages, args_.num_chunks);
    for (int chunk = 0; chunk < num_begun_; ++chunk) {
      const uint32_t full = shared_.full(chunk);
      arrive_expecting(full, stage_bytes(tile, chunk));
      copy_matrix(tile, chunk, chunk, full);
    }
  }

  __device__ void run(const MoeTile& tile) {
    find_runs(tile);
    copy_tile_exponents(tile);
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      const uint32_t full = shared_.full(stage_.index);
      if (chunk >= num_begun_) {
        wait_for(shared_.empty(stage_.index), stage_.parity ^ 1);
        arrive_expecting(full, stage_bytes(tile, chunk));
        copy_matrix(tile, chunk, stage_.index, full);
      }
      for (int i = 0; i < token_units(tile); ++i) copy_unit(tile, chunk, i, full);
      stage_.advance(args_.num_stages);
    }
    num_begun_ = 0;
  }

 private:
  __device__ int stage_bytes(const MoeTile& tile, int chunk) const {
    const int matrix_bytes =
        kImages ? (runs_[1] == nullptr ? 1 : 2) * images_size(chunk) : kMatrixSize;
    return matrix_bytes +
           token_units(tile) * (kPanels * kUnitSize + (kGated ? 0 : kUnit8 * kScalesRowSize));
  }

  // Of what a half has of a chunk.
  __device__ int images_size(int chunk) const {
    return min(kChunkImages, args_.row_images - chunk * kChunkImages) * kImageSize;
  }

  // Where the images of the tile's halves begin. Of the last tile the second half may be behind the
  // last row: what is left in stages then meets outputs that are not stored.
  __device__ void find_runs(const MoeTile& tile) {
    if constexpr (!kImages) return;
    const auto* const codes =
        static_cast<const uint8_t*>(args_.own.data) + tile.expert * args_.own.expert_stride;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row_of<kGated>(args_, tile.column_tile, half);
      const int64_t image = int64_t{row / kImageRows} * args_.row_images;
      runs_[half] = row < args_.num_rows ? codes + image * kImageSize : nullptr;
    }
  }

  __device__ void copy_runs(int chunk, int stage, uint32_t full) const {
    const int size = images_size(chunk);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half == 1 && runs_[half] == nullptr) continue;
      copy_bulk(shared_.matrix(stage) + half * kRunSize,
                runs_[half] + chunk * kRunSize,
                size,
                full,
                keep_);
    }
  }

  __device__ void copy_matrix(const MoeTile& tile, int chunk, int stage, uint32_t full) const {
    if constexpr (kImages) return copy_runs(chunk, stage, full);
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
  int num_begun_ = 0;            // of the first tile's chunks
  const uint8_t* runs_[2] = {};  // of a tile's images
};

}  // namespace atom::ops::device::terms
