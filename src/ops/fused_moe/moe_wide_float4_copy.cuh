// Inside fused_moe by wide tiles of matrices in MXFP4 on Hopper: copies of codes to their ring, and
// where they are expanded to.
#pragma once

#include "ops/fused_moe/moe_wide_float4_codes.cuh"
#include "ops/fused_moe/moe_wide_float8_sums.cuh"

namespace atom::ops::device::wide8 {

// By a warp: codes of the tiles' chunks, to their ring.
template <bool kGated>
class CodeCopier {
 public:
  __device__ CodeCopier(const MoeWideFloat8Args& args, const Shared<true>& shared)
      : args_(args), shared_(shared), policy_(keep_policy()), walk_(args) {}

  // Of the next chunk, when its stage is empty; nothing behind the last one.
  __device__ void copy() {
    if (chunk_ == 0) {
      if (!walk_.has_more()) return;
      tile_ = walk_.next();
    }
    wait_for(shared_.codes_empty(stage_.index), stage_.parity ^ 1);
    if (is_elected()) copy_parts();
    stage_.advance(kCodeStages);
    chunk_ = chunk_ + 1 < args_.num_chunks ? chunk_ + 1 : 0;
  }

 private:
  __device__ void copy_parts() const {
    const uint32_t full = shared_.codes_full(stage_.index);
    arrive_expecting(full, kCodeStageSize);
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int row = kGated && !args_.call.activation.is_interleaved
                          ? first_row_of<true>(args_, tile_, part)
                          : tile_.column_tile * kTileRows + part * kBlockRows;
      copy_box(shared_.codes(stage_.index) + part * kBlockRows * kCodeRowSize,
               &args_.matrices,
               chunk_ * kCodeRowSize,
               tile_.expert * args_.num_rows + row,
               full,
               policy_);
    }
  }

  const MoeWideFloat8Args& args_;
  const Shared<true>& shared_;
  const uint64_t policy_;
  TileWalk walk_;
  Tile tile_{};
  StageCursor stage_;
  int chunk_ = 0;
};

// By a warp: scales of a tile's tokens, asked for a chunk ahead.
class TokenScales {
 public:
  __device__ explicit TokenScales(const MoeWideFloat8Args& args)
      : args_(args), lane_(threadIdx.x % kWarpSize) {}

  __device__ void load(const Tile& tile, int chunk) {
    const float* const x = args_.x_scales + chunk * args_.rows_of_scales;
#pragma unroll
    for (int i = 0; i < kLaneTokens; ++i) {
      // Of rows that do not exist those of others.
      next_[i] =
          gpu_load_from_l2(x + min(tile.first_row + lane_ + i * kWarpSize, tile.end_row - 1));
    }
  }

  // To a stage's; then those of the chunk after it are asked for.
  __device__ void put(const Tile& tile, int chunk, uint32_t target) {
#pragma unroll
    for (int i = 0; i < kLaneTokens; ++i) {
      store_shared_float(target + 4 * place_of_token(lane_ + i * kWarpSize), next_[i]);
    }
    load(tile, min(chunk + 1, args_.num_chunks - 1));
  }

 private:
  static constexpr int kLaneTokens = kTileTokens / kWarpSize;

  const MoeWideFloat8Args& args_;
  const int lane_;
  float next_[kLaneTokens];
};

// A row of a tile's, which a thread expands: where the first 16 bytes of its codes are in a stage
// of codes, and what becomes of them in a stage. Others are where some bits of these are inverted.
template <bool kGated>
struct ExpandedRow {
  int row_of_tile;
  uint32_t source, target;
  // Of interleaved rows, of which every other one goes to the same place of the other part, these
  // begin with the second half, so that neighboring lanes write to different banks.
  bool begins_with_second;

  __device__ ExpandedRow(int row, bool is_interleaved) : row_of_tile(row) {
    const bool takes_turns = kGated && is_interleaved;
    const int output = takes_turns ? row / 2 : row % kBlockRows;
    const int product = takes_turns ? row % 2 : row / kBlockRows;
    const int part = output / kProductRows * kProducts + product;
    const int first =
        kGated ? part * kPartSize + output % kProductRows * kPanelSize : row * kPanelSize;
    const int swizzle = kGated ? output % 8 : row % 8;
    begins_with_second = takes_turns && product == 1;
    const int vector = begins_with_second ? 2 : 0;
    source = row * kCodeRowSize + (row / 2 % 4 ^ vector) * kVectorSize;
    target = first + (swizzle ^ 2 * vector) * kVectorSize;
  }
};

}  // namespace atom::ops::device::wide8
