// Inside fused_moe for few tokens by experts in FP8 on Hopper: what becomes of a tile's sums.
#pragma once

#include "ops/fused_moe/moe_skinny_sums.cuh"

namespace atom::ops::device::moe_skinny {

// Of a thread: what it needs besides the sums is loaded before they are known.
template <int kColumns, bool kHasCodes>
class Output {
 public:
  __device__ Output(const MoeSkinnyArgs& args, const Shared<kColumns>& shared, const Item& item)
      : args_(args),
        shared_(shared),
        item_(item),
        group_(shared.groups()[item.group]),
        warp_(threadIdx.x / kWarpSize),
        lane_(threadIdx.x % kWarpSize) {
    const MatrixArgs& matrix = args.matrices[item.matrix];
    if (!matrix.has_blocks) load_row_scales(matrix);
    if (item.matrix == 1 && lane_ < group_.num_rows) {
      if constexpr (kHasCodes) {
        choice_ = shared.choices()[group_.first_choice + lane_];
        weight_ = gpu_load_from_l2(args.call.weights + choice_);
      } else {
        choice_ = gpu_load_from_l2(args.scratch.choices + group_.first_row + lane_);
        weight_ = gpu_load_from_l2(args.scratch.weights + group_.first_row + lane_);
      }
    }
  }

  __device__ void store(const TileSums<kColumns>& sums) const {
    if (item_.matrix == 0) {
      store_activated(sums);
    } else {
      store_results(sums);
    }
  }

 private:
  static constexpr int kPairs = kColumns / 8;  // of columns, of a thread

  // Of a half of the tile.
  __device__ int row_of_half(int lower) const { return warp_ * 16 + lower * 8 + lane_ / 4; }
  __device__ int column_of(int pair) const { return pair * 8 + lane_ % 4 * 2; }

  __device__ void load_row_scales(const MatrixArgs& matrix) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        const int row = item_.row + half * matrix.half_stride + row_of_half(lower);
        row_scales_[half][lower] =
            scale_at(matrix.own, group_.expert, min(row, matrix.num_rows - 1), 0);
      }
    }
  }

  __device__ float2 scaled(const TileSums<kColumns>& sums, int half, int lower, int pair) const {
    const float2 sum = sums.at(half, lower, pair);
    const float scale = row_scales_[half][lower];
    return make_float2(sum.x * scale, sum.y * scale);
  }

  // Codes of a group's columns, all 128 of a token by one scale.
  __device__ void store_activated(const TileSums<kColumns>& sums) const {
    const GatedActivation& activation = args_.call.activation;
    float2 values[kPairs][2];
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        const float2 gate = scaled(sums, 0, lower, pair), up = scaled(sums, 1, lower, pair);
        values[pair][lower] =
            make_float2(activated(activation, gate.x, up.x), activated(activation, gate.y, up.y));
      }
      share_largest(pair, values[pair]);
    }
    synchronize_first<kNumConsumers>();
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const float2 scale = scales_of(pair);
      const float2 reciprocal = make_float2(1.0f / scale.x, 1.0f / scale.y);
      uint8_t* const codes =
          shared_.codes() + column_of(pair) * Shared<kColumns>::kCodesStride + row_of_half(0);
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        const float2 value = values[pair][lower];
        const uint32_t both = float8_pair(value.x * reciprocal.x, value.y * reciprocal.y);
        codes[8 * lower] = static_cast<uint8_t>(both);
        codes[8 * lower + Shared<kColumns>::kCodesStride] = static_cast<uint8_t>(both >> 8);
      }
      if (warp_ == 0 && lane_ < 4) store_scales(column_of(pair), scale);
    }
    synchronize_first<kNumConsumers>();
    store_codes();
    // Other blocks' copy engines read it.
    fence_global_copies();
  }

  // Of this warp's rows.
  __device__ void share_largest(int pair, const float2 (&values)[2]) const {
    float2 largest = make_float2(fmaxf(fabsf(values[0].x), fabsf(values[1].x)),
                                 fmaxf(fabsf(values[0].y), fabsf(values[1].y)));
#pragma unroll
    for (int mask = 4; mask < kWarpSize; mask *= 2) {
      largest.x = fmaxf(largest.x, exchange(largest.x, mask));
      largest.y = fmaxf(largest.y, exchange(largest.y, mask));
    }
    if (lane_ < 4) {
      *reinterpret_cast<float2*>(shared_.largest() + warp_ * kColumns + column_of(pair)) = largest;
    }
  }

  __device__ float2 scales_of(int pair) const {
    float2 largest{};
#pragma unroll
    for (int w = 0; w < kConsumerWarps; ++w) {
      const auto own =
          *reinterpret_cast<const float2*>(shared_.largest() + w * kColumns + column_of(pair));
      largest.x = fmaxf(largest.x, own.x);
      largest.y = fmaxf(largest.y, own.y);
    }
    return make_float2(scale_of(largest.x), scale_of(largest.y));
  }

  // Of less than that the codes are zeros, and no reciprocal is infinite.
  static __device__ float scale_of(float largest) {
    return largest > 0x1p-100f ? largest / kFloat8Max : 1.0f;
  }

  __device__ void store_scales(int column, float2 scale) const {
    float* const target = args_.scratch.activated_scales +
                          int64_t{item_.row / kMoeSkinnyGroup} * args_.scratch.num_rows +
                          group_.first_row + column;
    if (column < group_.num_rows) target[0] = scale.x;
    if (column + 1 < group_.num_rows) target[1] = scale.y;
  }

  __device__ void store_codes() const {
    constexpr int kVectors = kPanelSize / kVectorSize;  // of a row
    const int row = threadIdx.x / kVectors, vector = threadIdx.x % kVectors * kVectorSize;
    if (row >= group_.num_rows) return;
    uint8_t* const target = args_.scratch.activated +
                            int64_t{group_.first_row + row} * args_.call.intermediate_size +
                            item_.row + vector;
    store_bits(target, load_bits(shared_.codes() + row * Shared<kColumns>::kCodesStride + vector));
  }
  static_assert(kColumns * kPanelSize / kVectorSize <= kNumConsumers);

  __device__ void store_results(const TileSums<kColumns>& sums) const {
    const int num_rows = args_.call.hidden_size;
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = column_of(pair) + i;
        const int choice = __shfl_sync(0xffffffffu, choice_, column);
        const float weight = __shfl_sync(0xffffffffu, weight_, column);
        if (column >= group_.num_rows) continue;
        float* const target = args_.scratch.results + int64_t{choice} * num_rows;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (half >= item_.num_halves) continue;
          const int first = item_.row + half * kHalfRows;
#pragma unroll
          for (int lower = 0; lower < 2; ++lower) {
            const float2 sum = scaled(sums, half, lower, pair);
            target[first + row_of_half(lower)] = weight * (i == 0 ? sum.x : sum.y);
          }
        }
      }
    }
  }

  const MoeSkinnyArgs& args_;
  const Shared<kColumns>& shared_;
  const Item item_;
  const TokenGroup group_;
  const int warp_, lane_;
  float row_scales_[2][2] = {{1, 1}, {1, 1}};
  int choice_ = 0;  // of the group's token that the lane stands for, and its weight
  float weight_ = 0;
};

}  // namespace atom::ops::device::moe_skinny
