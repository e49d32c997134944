// Inside fused_moe by rows of matrices on Hopper: the thread that copies.
#pragma once

#include "ops/fused_moe/moe_exponents_copy.cuh"
#include "ops/fused_moe/moe_rows_stage.cuh"

namespace atom::ops::device::rows {

// By a warp. Of images its lanes copy the runs of a stage, each of 64 rows, side by side; one lane
// does everything else.
template <typename W, int kTokens, bool kGated>
class Copier {
 public:
  __device__ Copier(const MoeRowsArgs& args, const Shared<W, kTokens>& shared)
      : args_(args), shared_(shared), keep_(keep_policy()), is_first_(is_elected()) {}

  // What fits the stages of the first tile's matrix, before x is there.
  __device__ void begin(const MoeTile& tile) {
    find_run(tile);
    num_begun_ = min(args_.num_stages, args_.num_chunks);
    for (int chunk = 0; chunk < num_begun_; ++chunk) copy_matrix(tile, chunk, chunk);
  }

  __device__ void run(const MoeTile& tile) {
    find_run(tile);
    if (is_first_ && args_.exponents_size > 0) copy_tile_exponents(tile);
    for (int chunk = 0; chunk < args_.num_chunks; ++chunk) {
      if (chunk >= num_begun_) {
        if (is_first_) wait_for(shared_.empty(stage_.index), stage_.parity ^ 1);
        copy_matrix(tile, chunk, stage_.index);
      }
      if (is_first_) copy_x(tile, chunk);
      stage_.advance(args_.num_stages);
    }
    num_begun_ = 0;
  }

 private:
  __device__ void copy_x(const MoeTile& tile, int chunk) const {
#pragma unroll
    for (int panel = 0; panel < kPanels<W>; ++panel) {
      copy_box(shared_.x(stage_.index, panel),
               &args_.x,
               (chunk * kPanels<W> + panel) * (kPanelSize / 2),
               tile.first_row,
               shared_.full(stage_.index),
               keep_);
    }
  }

  // To a stage that is empty.
  __device__ void copy_matrix(const MoeTile& tile, int chunk, int stage) const {
    const uint32_t full = shared_.full(stage);
    if constexpr (Chunk<W>::kImages) {
      copy_runs(chunk, stage, full);
    } else if (is_first_) {
      arrive_expecting(full, kStageSize<W, kTokens>);
      copy_boxes(tile, chunk, stage, full);
    }
  }

  // Where the images of this lane's run of the tile begin. Of rows behind the last one stages keep
  // what they had: they have no outputs. So they do of columns behind a row's end, which meet zeros
  // of x.
  __device__ void find_run(const MoeTile& tile) {
    if constexpr (!Chunk<W>::kImages) return;
    constexpr int kHalfRuns = kRuns < W >> 1 ? kRuns<W> / 2 : 1;
    const int run = threadIdx.x % kWarpSize;
    const int row = first_row_of<W, kGated>(args_, tile.column_tile, run / kHalfRuns) +
                    run % kHalfRuns * kImageRows;
    const bool exists = run < kRuns<W> && row < args_.num_rows;
    const int64_t image = int64_t{row / kImageRows} * args_.row_images;
    run_ = exists ? static_cast<const uint8_t*>(args_.own.data) +
                        tile.expert * args_.own.expert_stride + image * kImageSize
                  : nullptr;
    num_runs_ = __popc(gpu_lanes_where(exists));
  }

  __device__ void copy_runs(int chunk, int stage, uint32_t full) const {
    const int size = min(kChunkImages<W>, args_.row_images - chunk * kChunkImages<W>) * kImageSize;
    if (is_first_) {
      arrive_expecting(full, num_runs_ * size + kTokens * kPanels<W> * kPanelSize);
    }
    __syncwarp();
    if (run_ == nullptr) return;
    copy_bulk(shared_.matrix(stage) + threadIdx.x % kWarpSize * kRunSize<W>,
              run_ + chunk * kRunSize<W>,
              size,
              full,
              keep_);
  }

  __device__ void copy_boxes(const MoeTile& tile, int chunk, int stage, uint32_t full) const {
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
  const bool is_first_;
  StageCursor stage_, buffer_;
  int num_begun_ = 0;             // of the first tile's chunks
  const uint8_t* run_ = nullptr;  // of images; null: none of this lane
  int num_runs_ = 0;
};

}  // namespace atom::ops::device::rows
