// Inside fused_moe by rows of matrices on Hopper: what becomes of a tile's sums.
#pragma once

#include "ops/fused_moe/moe_rows_stage.cuh"

namespace atom::ops::device::rows {

// The two tokens of each eight of a tile that a lane's sums are of.
__device__ inline int token_at(int i) {
  return i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2;
}

// Choices and weights of a tile's tokens. A lane has those of its own sums or, where a warp shares
// them, those of tokens lane + 32 i.
template <int kTokens, bool kShares>
struct TileChoices {
  static constexpr int kCount = kShares ? (kTokens + kWarpSize - 1) / kWarpSize : kTokens / 4;
  int choice[kCount];
  float weight[kCount];

  __device__ void load(const MoeRowsArgs& args, const MoeTile& tile) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int token = kShares ? i * kWarpSize + threadIdx.x % kWarpSize : token_at(i);
      const int row = tile.first_row + token;
      const bool exists = token < kTokens && row < tile.end_row;
      choice[i] = exists ? gpu_load_from_l2(args.tiles().choices + row) : -1;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      weight[i] = choice[i] < 0 ? 0.0f : gpu_load_from_l2(args.call.weights + choice[i]);
    }
  }

  // Of sum i's token, by whole warps.
  __device__ int choice_at(int i) const {
    if constexpr (!kShares) return choice[i];
    return gpu_shuffle(choice[i / 2 * 8 / kWarpSize], token_at(i) % kWarpSize);
  }
  __device__ float weight_at(int i) const {
    if constexpr (!kShares) return weight[i];
    return gpu_shuffle(weight[i / 2 * 8 / kWarpSize], token_at(i) % kWarpSize);
  }

  // Of any token, where a warp shares them.
  __device__ int choice_of(int first, int token) const {
    return gpu_shuffle(choice[first / kWarpSize], first % kWarpSize + token);
  }
  __device__ float weight_of(int first, int token) const {
    return gpu_shuffle(weight[first / kWarpSize], first % kWarpSize + token);
  }
};

// Of a warp. `sums` are of its blocks of 64 rows.
template <typename W, int kTokens, bool kGated>
class Output {
 public:
  static constexpr int kBlocks = Chunk<W>::kBlocks;
  using Sums = float[kBlocks][kTokens / 2];

  __device__ Output(const MoeRowsArgs& args, uint32_t memory)
      : args_(args), memory_(memory), lane_(threadIdx.x % kWarpSize) {}

  __device__ void begin(const MoeTile& tile) {
    tile_ = tile;
    if constexpr (!kGated) tokens_.load(args_, tile);
  }

  __device__ __forceinline__ void store(const Sums& sums) const {
    if constexpr (kGated) {
      store_activated(sums);
    } else {
      store_weighted(sums);
    }
  }

 private:
  using Rows = LaneRows<W, kGated>;
  static constexpr float kUnit = RowFormat<W>::kUnit;
  static constexpr bool kGathers = kBlocks == 2 && kTokens >= 16;
  static constexpr bool kShares = kGathers || Chunk<W>::kGroups > 2;

  // What a sum is to be multiplied by, and what is added then.
  struct Affine {
    float factor, bias;
    __device__ float operator()(float sum) const { return sum * factor + bias; }
  };

  // Of a row of the tile's.
  __device__ Affine affine(int row_of_tile) const {
    const int first = first_row_of<W, kGated>(args_, tile_.column_tile, row_of_tile / kHalfRows<W>);
    const int row = min(first + row_of_tile % kHalfRows<W>, args_.num_rows - 1);
    Affine affine{kUnit, 0};
    if (args_.own.bias != nullptr) {
      affine.bias = bias_at(args_.own, tile_.expert, row, args_.num_rows);
    }
    return affine;
  }

  __device__ float activated_of(float gate, float up) const {
    const GatedActivation& activation = args_.call.activation;
    return activation.kind == GatedActivationKind::kClampedSwiGlu
               ? clamped_swiglu(activation, gate, up)
               : silu_of(gate) * up;
  }

  // Outputs in the order of x: a warp's are side by side.
  __device__ __forceinline__ void store_activated(const Sums& sums) const {
    const int warp = threadIdx.x / kWarpSize, g = lane_ / 4;
    const Rows rows = Rows::of(args_.call.activation.is_interleaved);
    Affine gates[kBlocks], ups[kBlocks];
    bool exists[kBlocks];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const Affine first = affine(rows.row[b][0]), second = affine(rows.row[b][1]);
      gates[b] = rows.is_swapped ? second : first;
      ups[b] = rows.is_swapped ? first : second;
      exists[b] = tile_.column_tile * kHalfRows<W> + rows.output[b] < args_.call.intermediate_size;
    }
    auto* out = static_cast<BFloat16*>(args_.tiles().activated) + tile_.column_tile * kHalfRows<W> +
                warp * kBlocks * 8;
    // Places without a column meet zeros of the matrix, and have to be numbers.
    const auto value = [&](int b, int i) {
      const float gate = rows.is_swapped ? sums[b][i + 2] : sums[b][i];
      const float up = rows.is_swapped ? sums[b][i] : sums[b][i + 2];
      const float result = activated_of(gates[b](gate), ups[b](up));
      return exists[b] ? result : 0.0f;
    };
    if constexpr (kGathers) {
      const int place = lane_ / 8;  // of the lane's row of a stored matrix
      const uint32_t target =
          memory_ + (place / 2 * 8 + lane_ % 8) * kGatedRowStride + place % 2 * 16;
      const uint32_t source = memory_ + lane_ / 2 * kGatedRowStride + lane_ % 2 * 16;
#pragma unroll
      for (int first = 0; first < kTokens; first += 16) {
        uint32_t matrices[4];
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          const int b = m % 2, i = (first + m / 2 * 8) / 2;
          matrices[m] = bits_of_pair<BFloat16>(value(b, i), value(b, i + 1));
        }
        store_transposed(target, matrices);
        __syncwarp();
        const int row = tile_.first_row + first + lane_ / 2;
        if (row < tile_.end_row) {
          store_bits(out + int64_t{row} * args_.activated_width + lane_ % 2 * 8,
                     load_shared(source));
        }
        __syncwarp();
      }
    } else {
#pragma unroll
      for (int i = 0; i < kTokens / 4; ++i) {
        const int row = tile_.first_row + token_at(i);
        if (row >= tile_.end_row) continue;
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          out[int64_t{row} * args_.activated_width + b * 8 + g] =
              from_float<BFloat16>(value(b, i / 2 * 4 + i % 2));
        }
      }
    }
  }

  // A warp's outputs are side by side.
  __device__ __forceinline__ void store_weighted(const Sums& sums) const {
    const int warp = threadIdx.x / kWarpSize;
    const Rows rows = Rows::of(false);
    Affine affines[kBlocks][2];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      affines[b][0] = affine(rows.row[b][0]);
      affines[b][1] = affine(rows.row[b][1]);
    }
    const int first_output = tile_.column_tile * kTileRows<W> + warp * kBlocks * 16;
    auto* out = static_cast<BFloat16*>(args_.scratch.results);
    if constexpr (kGathers) {
      const uint32_t target = memory_ + lane_ % 8 * kRowStride + lane_ / 8 * 16;
      const uint32_t source = memory_ + lane_ / 4 * kRowStride + lane_ % 4 * 16;
      const int output = first_output + lane_ % 4 * 8;
#pragma unroll
      for (int first = 0; first < kTokens; first += 8) {
        const float weights[2] = {tokens_.weight_of(first, lane_ % 4 * 2),
                                  tokens_.weight_of(first, lane_ % 4 * 2 + 1)};
        uint32_t matrices[4];
#pragma unroll
        for (int m = 0; m < 4; ++m) {
          const int b = m / 2, i = first / 2 + m % 2 * 2;
          matrices[m] = bits_of_pair<BFloat16>(weights[0] * affines[b][m % 2](sums[b][i]),
                                               weights[1] * affines[b][m % 2](sums[b][i + 1]));
        }
        store_transposed(target, matrices);
        __syncwarp();
        const int choice = tokens_.choice_of(first, lane_ / 4);
        if (choice >= 0 && output < args_.num_outputs) {
          store_bits(out + int64_t{choice} * args_.num_outputs + output, load_shared(source));
        }
        __syncwarp();
      }
    } else {
#pragma unroll
      for (int i = 0; i < kTokens / 4; ++i) {
        const int choice = tokens_.choice_at(i);
        const float weight = tokens_.weight_at(i);
        if (choice < 0) continue;
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
          for (int eight = 0; eight < 2; ++eight) {
            const int output = first_output + b * 16 + eight * 8 + lane_ / 4;
            if (output >= args_.num_outputs) continue;
            const float sum = sums[b][i / 2 * 4 + eight * 2 + i % 2];
            out[int64_t{choice} * args_.num_outputs + output] =
                from_float<BFloat16>(weight * affines[b][eight](sum));
          }
        }
      }
    }
  }

  const MoeRowsArgs& args_;
  const uint32_t memory_;
  const int lane_;
  MoeTile tile_{};
  TileChoices<kTokens, kShares> tokens_;
};

}  // namespace atom::ops::device::rows
