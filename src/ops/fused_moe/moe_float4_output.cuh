// Inside fused_moe for many tokens by experts in MXFP4 on Hopper: which rows of a tile's matrix a
// lane has, and what becomes of its sums.
#pragma once

#include "ops/fused_moe/moe_float4_stage.cuh"
#include "ops/fused_moe/moe_stream_format.cuh"

namespace atom::ops::device::moe4 {

// Of the two products of a warpgroup, each of 64 rows: of row g of a warp's 16 and of row g + 8.
// With the activation these are a gate and its up.
struct LaneRows {
  int row[2][2];  // of the tile's 256

  // Of the consumers' warps.
  template <bool kGated>
  static __device__ LaneRows of(bool is_interleaved) {
    const int warp = threadIdx.x / kWarpSize, g = threadIdx.x % kWarpSize / 4;
    LaneRows rows;
#pragma unroll
    for (int b = 0; b < 2; ++b) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if constexpr (kGated) {
          const int output = column_at(warp * 16 + b * 8 + g);
          rows.row[b][i] = is_interleaved ? 2 * output + i : output + i * kHalfRows;
        } else {
          rows.row[b][i] = warp * 32 + b * 16 + i * 8 + g;
        }
      }
    }
    return rows;
  }
};

// What a lane needs of the tokens of a tile, each of which is lane l's as token l + 32 i.
template <int kTokens>
struct TokenChoices {
  static constexpr int kCount = kTokens / kWarpSize;
  int choice[kCount];
  float weight[kCount];

  __device__ void load(const MoeFloat4Args& args, const MoeTile& tile) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int row = tile.first_row + i * kWarpSize + threadIdx.x % kWarpSize;
      choice[i] = row < tile.end_row ? gpu_load_from_l2(args.tiles().choices + row) : -1;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      weight[i] = choice[i] < 0 ? 0.0f : gpu_load_from_l2(args.call.weights + choice[i]);
    }
  }
};

// Of a warp.
template <int kTokens, bool kGated>
class Output {
 public:
  using Sums = float[2][kTokens / 2];

  __device__ Output(const MoeFloat4Args& args, uint32_t memory)
      : args_(args), memory_(memory), lane_(threadIdx.x % kWarpSize) {}

  __device__ void begin(const MoeTile& tile) {
    tile_ = tile;
    if constexpr (!kGated) tokens_.load(args_, tile);
  }

  __device__ void store(const Sums& sums) const {
    if constexpr (kGated) {
      store_activated(sums);
    } else {
      store_weighted(sums);
    }
  }

 private:
  static constexpr float kUnit = RowFormat<Float4>::kUnit;

  // Of a row of the tile's matrix.
  __device__ float bias(int row_of_tile) const {
    if (args_.own.bias == nullptr) return 0.0f;
    const int half = row_of_tile / kHalfRows;
    const int row = first_row_of<kGated>(args_, tile_.column_tile, half) + row_of_tile % kHalfRows;
    return bias_at(args_.own, tile_.expert, min(row, args_.num_rows - 1), args_.num_rows);
  }

  // Outputs in the order of x: a warp's 16 are side by side.
  __device__ void store_activated(const Sums& sums) const {
    const int warp = threadIdx.x / kWarpSize, g = lane_ / 4;
    const int64_t width = int64_t{args_.num_column_tiles} * kMoeChunkColumns;
    const bool is_clamped = args_.call.activation.kind == GatedActivationKind::kClampedSwiGlu;
    const LaneRows rows = LaneRows::of<true>(args_.call.activation.is_interleaved);
    float biases[2][2];
    bool exists[2];
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      biases[b][0] = bias(rows.row[b][0]);
      biases[b][1] = bias(rows.row[b][1]);
      exists[b] = tile_.column_tile * kMoeChunkColumns + column_at(warp * 16 + b * 8 + g) <
                  args_.num_outputs;
    }
    const int place = lane_ / 8;  // of the lane's row of a stored matrix
    const uint32_t target =
        memory_ + (place / 2 * 8 + lane_ % 8) * kGatedRowStride + place % 2 * 16;
    const uint32_t source = memory_ + lane_ / 2 * kGatedRowStride + lane_ % 2 * 16;
    auto* out = static_cast<BFloat16*>(args_.tiles().activated) +
                tile_.column_tile * kMoeChunkColumns + warp * 16 + lane_ % 2 * 8;
#pragma unroll
    for (int first = 0; first < kTokens; first += 16) {
      uint32_t matrices[4];
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const int b = m % 2, i = (first + m / 2 * 8) / 2;
        float values[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const float gate = sums[b][i + j] * kUnit + biases[b][0];
          const float up = sums[b][i + 2 + j] * kUnit + biases[b][1];
          values[j] =
              is_clamped ? clamped_swiglu(args_.call.activation, gate, up) : silu_of(gate) * up;
          // Places without a column meet zeros of the matrix.
          if (!exists[b]) values[j] = 0;
        }
        matrices[m] = bits_of_pair<BFloat16>(values[0], values[1]);
      }
      store_transposed(target, matrices);
      __syncwarp();
      const int row = tile_.first_row + first + lane_ / 2;
      if (row < tile_.end_row) store_bits(out + row * width, load_shared(source));
      __syncwarp();
    }
  }

  // A warp's 32 outputs are side by side.
  __device__ void store_weighted(const Sums& sums) const {
    const int warp = threadIdx.x / kWarpSize;
    const LaneRows rows = LaneRows::of<false>(false);
    float biases[2][2];
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      biases[b][0] = bias(rows.row[b][0]);
      biases[b][1] = bias(rows.row[b][1]);
    }
    const uint32_t target = memory_ + lane_ % 8 * kRowStride + lane_ / 8 * 16;
    const uint32_t source = memory_ + lane_ / 4 * kRowStride + lane_ % 4 * 16;
    const int output = tile_.column_tile * kTileRows + warp * 32 + lane_ % 4 * 8;
    auto* out = static_cast<BFloat16*>(args_.scratch.results) + output;
#pragma unroll
    for (int first = 0; first < kTokens; first += 8) {
      const int own = first / kWarpSize;  // of tokens_
      uint32_t matrices[4];
      float weights[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        weights[j] = gpu_shuffle(tokens_.weight[own], first % kWarpSize + lane_ % 4 * 2 + j);
      }
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const int b = m / 2, i = first / 2 + m % 2 * 2;
        matrices[m] =
            bits_of_pair<BFloat16>(weights[0] * (sums[b][i] * kUnit + biases[b][m % 2]),
                                   weights[1] * (sums[b][i + 1] * kUnit + biases[b][m % 2]));
      }
      store_transposed(target, matrices);
      __syncwarp();
      const int choice = gpu_shuffle(tokens_.choice[own], first % kWarpSize + lane_ / 4);
      if (choice >= 0 && output < args_.num_outputs) {
        store_bits(out + int64_t{choice} * args_.num_outputs, load_shared(source));
      }
      __syncwarp();
    }
  }

  const MoeFloat4Args& args_;
  const uint32_t memory_;
  const int lane_;
  MoeTile tile_{};
  TokenChoices<kTokens> tokens_;
};

}  // namespace atom::ops::device::moe4
