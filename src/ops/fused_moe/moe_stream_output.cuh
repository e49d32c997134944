// Inside fused_moe's kernels for few tokens: from the sums of the warps to what a unit gives.
#pragma once

#include "ops/fused_moe/moe_stream_work.cuh"

namespace atom::ops::device {

// float32 sums of a tile by one warp.
template <int kTokens>
constexpr int kTileSums = kTileRows* kTokens;

// What a thread finishes of a unit: one output of a token. What it needs besides the sums is loaded
// before they are known.
template <int kTokens, bool kGated>
class Output {
 public:
  static constexpr int kPerToken = kGated ? kTileRows / 2 : kTileRows;

  __device__ Output(const MoeStreamArgs& args,
                    const TokenGroup& group,
                    const uint16_t* choices,
                    int tile)
      : args_(args),
        token_(threadIdx.x / kPerToken),
        column_(tile * kPerToken + threadIdx.x % kPerToken) {
    const bool interleaved = kGated && args.call.activation.is_interleaved;
    const int index = threadIdx.x % kPerToken;
    first_ = interleaved ? 2 * index : index;
    second_ = interleaved ? first_ + 1 : first_ + kPerToken;
    const int num_columns = kGated ? args.num_rows / 2 : args.num_rows;
    exists_ = token_ < group.num_rows && column_ < num_columns;
    if (!exists_) return;
    load(group.expert, matrix_row<kGated>(args, tile, first_), scales_[0], biases_[0]);
    if constexpr (kGated) {
      load(group.expert, matrix_row<kGated>(args, tile, second_), scales_[1], biases_[1]);
      row_ = group.first_row + token_;
    } else {
      row_ = choices[group.first_row + token_];
      weight_ = gpu_load_from_l2(args.call.weights + row_);
    }
  }

  // `sums`: of each warp.
  __device__ void store(const float* sums) const {
    if (!exists_) return;
    const float first = total(sums, first_) * scales_[0] + biases_[0];
    if constexpr (kGated) {
      const float second = total(sums, second_) * scales_[1] + biases_[1];
      static_cast<BFloat16*>(
          args_.scratch.activated)[int64_t{row_} * (args_.num_rows / 2) + column_] =
          from_float<BFloat16>(activated(args_.call.activation, first, second));
    } else {
      args_.scratch.results[int64_t{row_} * args_.num_rows + column_] = weight_ * first;
    }
  }

 private:
  __device__ void load(int expert, int row, float& scale, float& bias) const {
    if (args_.matrices.scales_across <= 1) scale = scale_at(args_.matrices, expert, row, 0);
    bias = bias_at(args_.matrices, expert, row, args_.num_rows);
  }

  __device__ float total(const float* sums, int tile_row) const {
    const int place = (tile_row / 8 * kTokens + token_) * 8 + tile_row % 8;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kConsumerWarps; ++w) sum += sums[w * kTileSums<kTokens> + place];
    return sum;
  }

  const MoeStreamArgs& args_;
  const int token_;  // of the group
  const int column_;
  int first_, second_;  // rows of the tile
  int row_ = 0;
  bool exists_;
  float scales_[2] = {1, 1}, biases_[2] = {}, weight_ = 1;
};

// To shared memory: [2][kTokens][8] of this warp.
template <int kTokens>
__device__ inline void share_sums(const TileSums& sums, float* warp_sums) {
  const int lane = threadIdx.x % kWarpSize, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int b = 0; b < 2; ++b) {
#pragma unroll
    for (int half = 0; half < kTokens / 8; ++half) {
      float* target = warp_sums + (b * kTokens + half * 8 + g) * 8 + 2 * t;
      *reinterpret_cast<float2*>(target) = make_float2(sums[b][2 * half], sums[b][2 * half + 1]);
    }
  }
}

}  // namespace atom::ops::device
