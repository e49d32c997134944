// Inside fused_moe by wide tiles on Hopper: what becomes of a tile's sums.
#pragma once

#include "ops/fused_moe/moe_fast_activation.cuh"
#include "ops/fused_moe/moe_wide_stage.cuh"

namespace atom::ops::device::wide {

// Of a warp, which has 16 rows of the matrix: a lane rows g and g + 8 and of each eight tokens two.
template <bool kGated>
class Output {
 public:
  using Sums = float[kTileTokens / 2];

  __device__ Output(const MoeWideArgs& args, uint32_t memory)
      : args_(args),
        activation_(args.call.activation),
        memory_(memory),
        lane_(threadIdx.x % kWarpSize) {}

  __device__ void begin(const MoeTile& tile) {
    tile_ = tile;
    const int g = lane_ / 4, warp = threadIdx.x / kWarpSize;
    first_output_ = tile.column_tile * kOutputs + warp * kWarpOutputs;
    const int output = min(first_output_ + g, args_.num_outputs - (kGated ? 1 : kPairRows + 1));
    const bool interleaved = kGated && args_.call.activation.is_interleaved;
    const int row = interleaved ? 2 * output : output;
    const int to_other = !kGated ? kPairRows : interleaved ? 1 : args_.num_outputs;
    bias_[0] = bias_at(args_.own, tile.expert, max(row, 0), args_.num_rows);
    bias_[1] = bias_at(args_.own, tile.expert, max(row, 0) + to_other, args_.num_rows);
    if constexpr (!kGated) load_choices();
  }

  // Of the tile's first tokens.
  template <int kTokens>
  __device__ void store(const Sums& sums) const {
    if constexpr (!kGated) {
      store_weighted<kTokens>(sums);
    } else if (activation_.is_clamped()) {
      store_activated<kTokens, true>(sums);
    } else {
      store_activated<kTokens, false>(sums);
    }
  }

 private:
  static constexpr int kOutputs = kGated ? kTileFeatures / 2 : kTileFeatures;  // of a tile
  static constexpr int kWarpOutputs = kOutputs / kConsumerWarps;
  static constexpr int kLaneTokens = kTileTokens / kWarpSize;

  // Some parts of a tile's tokens, of kPart each, are on their way at a time, so that each does not
  // wait for itself: put(first token, memory), and take(first token, vector) of what is at `source`
  // behind that memory then.
  template <int kTokens, int kPart, typename Put, typename Take>
  __device__ __forceinline__ void by_parts(uint32_t source, Put&& put, Take&& take) const {
#pragma unroll
    for (int begin = 0; begin < kTokens; begin += kOutputParts * kPart) {
      const int end =
          begin + kOutputParts * kPart < kTokens ? begin + kOutputParts * kPart : kTokens;
      __syncwarp();
#pragma unroll
      for (int first = begin; first < end; first += kPart) {
        put(first, memory_ + (first - begin) / kPart * kOutputPartSize);
      }
      __syncwarp();
      uint4 vectors[kOutputParts];
#pragma unroll
      for (int first = begin; first < end; first += kPart) {
        const int part = (first - begin) / kPart;
        vectors[part] = load_shared(memory_ + part * kOutputPartSize + source);
      }
#pragma unroll
      for (int first = begin; first < end; first += kPart) {
        take(first, vectors[(first - begin) / kPart]);
      }
    }
  }

  // Of 32 tokens at a time: a lane's rows of transposed matrices are its own token's eight outputs.
  template <int kTokens, bool kClamped>
  __device__ __forceinline__ void store_activated(const Sums& sums) const {
    auto* const out = static_cast<BFloat16*>(args_.scratch.shared.activated) + first_output_;
    const uint32_t own = lane_ * 16;
    by_parts<kTokens, kWarpSize>(
        own,
        [&](int first, uint32_t memory) {
          uint32_t matrices[4];
#pragma unroll
          for (int m = 0; m < 4; ++m) {
            const int i = first / 2 + m * 4;
            float outputs[2] = {sums[i] + bias_[0], sums[i + 1] + bias_[0]};
            activation_.apply<kClamped>(outputs, {sums[i + 2] + bias_[1], sums[i + 3] + bias_[1]});
            matrices[m] = bits_of_pair<BFloat16>(outputs[0], outputs[1]);
          }
          store_transposed(memory + own, matrices);
        },
        [&](int first, const uint4& vector) {
          const int row = tile_.first_row + first + lane_;
          if (row >= tile_.end_row || first_output_ >= args_.num_outputs) return;
          store_bits(out + int64_t{row} * args_.num_outputs, vector);
        });
  }

  // Of 16 tokens at a time, 16 outputs each.
  template <int kTokens>
  __device__ __forceinline__ void store_weighted(const Sums& sums) const {
    auto* const out = static_cast<BFloat16*>(args_.scratch.results);
    const int place = lane_ / 8;  // of the matrix that has the lane's row
    const uint32_t target = (place / 2 * 8 + lane_ % 8) * kRowStride + place % 2 * 16;
    const uint32_t source = lane_ / 2 * kRowStride + lane_ % 2 * 16;
    const int output = first_output_ + lane_ % 2 * 8;
    by_parts<kTokens, 16>(
        source,
        [&](int first, uint32_t memory) {
          uint32_t matrices[4];
#pragma unroll
          for (int m = 0; m < 4; ++m) {
            const int token = first + m / 2 * 8 + lane_ % 4 * 2, half = m % 2;
            const int i = first / 2 + m / 2 * 4 + half * 2;
            matrices[m] =
                bits_of_pair<BFloat16>(of_token(weight_, token) * (sums[i] + bias_[half]),
                                       of_token(weight_, token + 1) * (sums[i + 1] + bias_[half]));
          }
          store_transposed(memory + target, matrices);
        },
        [&](int first, const uint4& vector) {
          const int choice = of_token(choice_, first + lane_ / 2);
          if (choice < 0 || output >= args_.num_outputs) return;
          store_bits(out + int64_t{choice} * args_.num_outputs + output, vector);
        });
  }

  // A lane has those of tokens lane + 32 i.
  __device__ void load_choices() {
#pragma unroll
    for (int i = 0; i < kLaneTokens; ++i) {
      const int row = tile_.first_row + i * kWarpSize + lane_;
      choice_[i] = row < tile_.end_row ? gpu_load_from_l2(args_.scratch.shared.choices + row) : -1;
    }
#pragma unroll
    for (int i = 0; i < kLaneTokens; ++i) {
      weight_[i] = choice_[i] < 0 ? 0.0f : gpu_load_from_l2(args_.call.weights + choice_[i]);
    }
  }

  // `token` / 32 is known when this is compiled.
  template <typename T>
  static __device__ T of_token(const T (&values)[kLaneTokens], int token) {
    return gpu_shuffle(values[token / kWarpSize], token % kWarpSize);
  }

  const MoeWideArgs& args_;
  const FastActivation activation_;
  const uint32_t memory_;
  const int lane_;
  MoeTile tile_{};
  int first_output_ = 0;  // the warp's
  float bias_[2];
  int choice_[kLaneTokens];
  float weight_[kLaneTokens];
};

}  // namespace atom::ops::device::wide
