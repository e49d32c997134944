// Inside fused_moe by wide tiles in FP8 on Hopper: the threads that copy rows of a matrix, tokens
// and scales to the stages. Of the matrix each of a cluster's blocks copies a half to both.
#pragma once

#include "ops/fused_moe/moe_wide_float8_sums.cuh"

namespace atom::ops::device::wide8 {

// By a warp, of which one lane copies: the rows of the warpgroup whose number is the block's.
template <bool kGated>
__device__ void copy_matrices(const MoeWideFloat8Args& args, const Shared<false>& shared) {
  constexpr uint16_t kBothBlocks = 3;
  const uint64_t policy = keep_policy();
  const bool copies = is_elected();
  const int rank = cluster_rank();
  StageCursor stage;
  for_tiles(args, [&](const Tile& tile) {
    if (!copies) return;
    int rows[kProducts];
#pragma unroll
    for (int i = 0; i < kProducts; ++i) {
      rows[i] = tile.expert * args.num_rows +
                (kGated ? first_row_of<kGated>(args, tile, i) + rank * kProductRows
                        : first_row_of<kGated>(args, tile, rank) + i * kProductRows);
    }
    for (int chunk = 0; chunk < args.num_chunks; ++chunk) {
      const uint32_t full = shared.full(stage.index);
      const uint32_t target = shared.matrix(stage.index) + rank * kProducts * kPartSize;
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
#pragma unroll
      for (int i = 0; i < kProducts; ++i) {
        copy_box_to_all(target + i * kPartSize,
                        &args.matrices,
                        chunk * kPanelSize,
                        rows[i],
                        full,
                        kBothBlocks,
                        policy);
      }
      stage.advance(kNumStages<false>);
    }
  });
}

// By another: the tokens of this block.
inline __device__ void copy_x(const MoeWideFloat8Args& args, const Shared<false>& shared) {
  const uint64_t policy = keep_policy();
  const bool copies = is_elected();
  StageCursor stage;
  for_tiles(args, [&](const Tile& tile) {
    if (!copies) return;
    for (int chunk = 0; chunk < args.num_chunks; ++chunk) {
      const uint32_t full = shared.full(stage.index), target = shared.x(stage.index);
      wait_for(shared.empty(stage.index), stage.parity ^ 1);
      arrive_expecting(full, kMatrixSize + tile.units * kUnitSize);
      for (int i = 0; i < tile.units; ++i) {
        copy_box(target + i * kUnitSize,
                 &args.x,
                 chunk * kPanelSize,
                 tile.first_row + i * kTokenUnit,
                 full,
                 policy);
      }
      stage.advance(kNumStages<false>);
    }
  });
}

// By a third: scales of tokens, each times those of the two parts of the matrix.
template <bool kGated>
class ScaleCopier {
 public:
  __device__ ScaleCopier(const MoeWideFloat8Args& args, const Shared<false>& shared)
      : args_(args), shared_(shared), lane_(threadIdx.x % kWarpSize) {}

  __device__ void run() {
    for_tiles(args_, [&](const Tile& tile) { copy(tile); });
  }

 private:
  static constexpr int kLaneTokens = kTileTokens / kWarpSize;

  struct Scales {
    float x[kLaneTokens], parts[2];
  };

  __device__ Scales load(const Tile& tile, int chunk) const {
    Scales scales;
    const float* const x = args_.x_scales + chunk * args_.rows_of_scales;
#pragma unroll
    for (int i = 0; i < kLaneTokens; ++i) {
      // Of rows that do not exist those of others.
      scales.x[i] =
          gpu_load_from_l2(x + min(tile.first_row + lane_ + i * kWarpSize, tile.end_row - 1));
    }
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      scales.parts[part] = 1.0f;
      if (args_.scales == RowScales::kEach || args_.own.scales == nullptr) continue;
      const float* const own = args_.own.scales + tile.expert * args_.own.scale_stride;
      const int row = min(first_row_of<kGated>(args_, tile, part), args_.num_rows - 1);
      scales.parts[part] = args_.scales == RowScales::kAll
                               ? *own
                               : own[row / kBlockRows * args_.own.scales_across + chunk];
    }
    return scales;
  }

  // What is asked for two chunks ahead stays in the registers that it comes to: nothing waits for
  // it before it is used.
  __device__ void copy(const Tile& tile) {
    constexpr int kAhead = 2, kSets = kAhead + 1;
    Scales sets[kSets];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) sets[i] = load(tile, min(i, args_.num_chunks - 1));
    for (int first = 0; first < args_.num_chunks; first += kSets) {
#pragma unroll
      for (int i = 0; i < kSets; ++i) {
        if (first + i >= args_.num_chunks) break;
        sets[(i + kAhead) % kSets] = load(tile, min(first + i + kAhead, args_.num_chunks - 1));
        put(sets[i]);
      }
    }
  }

  // To the next stage, when it is empty.
  __device__ void put(const Scales& scales) {
    wait_for(shared_.empty(stage_.index), stage_.parity ^ 1);
    const uint32_t target = shared_.scales(stage_.index);
#pragma unroll
    for (int i = 0; i < kLaneTokens; ++i) {
      const uint32_t place = target + 4 * place_of_token(lane_ + i * kWarpSize);
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        store_shared_float(place + part * (kScalesSize / 2), scales.x[i] * scales.parts[part]);
      }
    }
    __syncwarp();
    if (lane_ == 0) arrive(shared_.full(stage_.index));
    stage_.advance(kNumStages<false>);
  }

  const MoeWideFloat8Args& args_;
  const Shared<false>& shared_;
  const int lane_;
  StageCursor stage_;
};

}  // namespace atom::ops::device::wide8
