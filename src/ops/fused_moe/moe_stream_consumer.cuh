// Inside fused_moe's kernels for few tokens: the warps that multiply.
#pragma once

#include <algorithm>

#include "ops/fused_moe/moe_stream_copy.cuh"
#include "ops/fused_moe/moe_stream_output.cuh"

namespace atom::ops::device {

template <typename W, int kTokens, int kSteps, bool kGated>
class Consumer {
 public:
  __device__ Consumer(const MoeStreamArgs& args, const StreamBarriers& barriers, uint8_t* shared)
      : args_(args),
        barriers_(barriers),
        groups_(groups_of(args, shared)),
        choices_(choices_of(args, shared)),
        sums_(reinterpret_cast<float*>(shared + args.sums)) {
    const int lane = threadIdx.x % kWarpSize, g = lane / 4, t = lane % 4;
    // Of the lanes of a row each has 16 bytes, or where these share scales a word of every 16.
    constexpr int kOwn = kHasGroups ? int{sizeof(uint32_t)} : kVectorSize;
    const int first = warp() * kSteps * kStepSize;
    row_offset_ = kHasGroups ? first : first + t * kOwn;
    rows_ = shared_address(shared + args.ring) + g * kRowStride<W, kSteps> + first + t * kOwn;
    x_ = shared_address(shared + args.x_buffers);
    // What stands for tokens that are not there is nobody's.
    x_offset_ =
        min(g, args.num_x_rows - 1) * args.x_row_stride + (first + t * kOwn) * Format::kXVectors;
    const uint32_t behind_rows =
        shared_address(shared + args.ring) + kTileRows * kRowStride<W, kSteps>;
    exponents_ = behind_rows + g * args.row_exponents + row_offset_ / kVectorSize;
    scales_ = behind_rows + 2 * t * args.row_scales + warp() * kSteps * kStepScalesSize;
  }

  __device__ void run(const UnitRun& run) {
    UnitCursor unit(run);
    bool has_x = false;
    for (int u = run.begin; u < run.end; ++u) {
      if (!has_x) receive_tokens(groups_[unit.group].num_rows);
      has_x = true;
      const Output<kTokens, kGated> output(args_, groups_[unit.group], choices_, unit.tile);
      TileSums sums = {};
      add_products(groups_[unit.group].expert, unit.tile, sums);
      unit.advance(run);
      if (unit.tile == 0) {
        release_tokens();
        has_x = false;
      }
      // Two places take turns, so that the next unit's sums need not wait for the reads of these.
      float* tile_sums = sums_ + u % 2 * kConsumerWarps * kTileSums<kTokens>;
      share_sums<kTokens>(sums, tile_sums + warp() * kTileSums<kTokens>);
      synchronize_first<kConsumerWarps * kWarpSize>();
      output.store(tile_sums);
    }
  }

 private:
  using Format = RowFormat<W>;
  static constexpr bool kHasGroups = kGroupColumns<W> > 0;
  static constexpr int kStepScalesSize =
      kHasGroups ? kStepSize * 2 / std::max(1, kGroupColumns<W>) * int{sizeof(float)} : 0;

  static __device__ int warp() { return threadIdx.x / kWarpSize; }

  // When all lanes have read.
  static __device__ void release(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % kWarpSize == 0) arrive(barrier);
  }

  __device__ uint32_t x_buffer() const {
    return x_ + buffer_.index * args_.num_x_rows * args_.x_row_stride;
  }

  __device__ void receive_tokens(int num_tokens) const {
    wait_for(barriers_.x_full(buffer_.index), buffer_.parity);
    if constexpr (kPairsFourApart<W>) {
      const int num_vectors = args_.x_size / kVectorSize;
      for (int i = threadIdx.x; i < num_tokens * num_vectors; i += kConsumerWarps * kWarpSize) {
        const uint32_t vector =
            x_buffer() + i / num_vectors * args_.x_row_stride + i % num_vectors * kVectorSize;
        store_shared(vector, Format::paired(load_shared(vector)));
      }
      synchronize_first<kConsumerWarps * kWarpSize>();
    }
  }

  __device__ void release_tokens() {
    if constexpr (kPairsFourApart<W>) fence_before_copies();
    release(barriers_.x_empty(buffer_.index));
    buffer_.advance(args_.num_x_buffers);
  }

  __device__ void add_products(int expert, int tile, TileSums& sums) {
    const bool in_blocks = !kHasGroups && args_.matrices.scales_across > 1;
    int offset = 0;
    for (; offset < args_.row_size; offset += kSliceSize<kSteps>) {
      float scales[2] = {1, 1};
      if (in_blocks) load_scales(expert, tile, offset, scales);
      wait_for(barriers_.full(stage_.index), stage_.parity);
      const int stage = stage_.index * args_.stage_size;
      const StepPlace place = {.rows = rows_ + stage,
                               .x = x_buffer() + x_offset_ + offset * Format::kXVectors,
                               .exponents = exponents_ + stage + offset / kVectorSize,
                               .x_row_stride = args_.x_row_stride,
                               .row_exponents = args_.row_exponents,
                               .scales = scales_ + stage,
                               .row_scales = args_.row_scales};
      if (in_blocks) {
        TileSums part = {};
        add_slice(place, offset, part);
#pragma unroll
        for (int b = 0; b < 2; ++b) {
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[b][i] += scales[b] * part[b][i];
        }
      } else {
        add_slice(place, offset, sums);
      }
      release(barriers_.empty(stage_.index));
      stage_.advance(args_.num_stages);
    }
    if constexpr (Format::kUnit != 1) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[b][i] *= Format::kUnit;
      }
    }
  }

  __device__ void add_slice(StepPlace place, int offset, TileSums& sums) const {
    const auto next = [&] {
      place.rows += kStepSize;
      place.x += kStepSize * Format::kXVectors;
      place.exponents += kStepSize / kVectorSize;
      place.scales += kStepScalesSize;
    };
    if constexpr (kHasGroups) {
      const int left = args_.row_size - offset - row_offset_;
#pragma unroll
      for (int s = 0; s < kSteps; ++s, next()) {
        multiply_groups<W, kTokens, kRowStride<W, kSteps>>(
            place, (left - s * kStepSize) / kVectorSize, sums);
      }
    } else if (offset + kSliceSize<kSteps> <= args_.row_size) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s, next()) step(place, true, sums);
    } else {
#pragma unroll 1
      for (int s = 0; s < kSteps; ++s, next()) {
        step(place, offset + row_offset_ + s * kStepSize < args_.row_size, sums);
      }
    }
  }

  __device__ void step(const StepPlace& place, bool exists, TileSums& sums) const {
    multiply_step<W, kTokens, kRowStride<W, kSteps>>(place, exists, sums);
  }

  // Of the block of columns that this warp's part of a slice lies in.
  __device__ void load_scales(int expert, int tile, int offset, float (&scales)[2]) const {
    const int part =
        (offset + warp() * kSteps * kStepSize) / int{sizeof(W)} / args_.matrices.scale_columns;
    if (part >= args_.matrices.scales_across) return;
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const int row = matrix_row<kGated>(args_, tile, 8 * b);
      if (row < args_.num_rows) scales[b] = scale_at(args_.matrices, expert, row, part);
    }
  }

  const MoeStreamArgs& args_;
  const StreamBarriers& barriers_;
  const TokenGroup* const groups_;
  const uint16_t* const choices_;
  float* const sums_;
  StageCursor stage_, buffer_;
  int row_offset_, x_offset_;           // of this lane's bytes in a slice, and of what they meet
  uint32_t rows_, exponents_, scales_;  // this lane's, of the first stage
  uint32_t x_;                          // the first buffer
};

}  // namespace atom::ops::device
