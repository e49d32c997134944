// Inside fused_moe by terms in FP8: what becomes of a tile's sums.
#pragma once

#include "ops/fused_moe/moe_terms_numbers.cuh"
#include "ops/fused_moe/moe_terms_stage.cuh"

namespace atom::ops::device::terms {

// The two tokens of each eight of a tile that a lane's sums are of.
__device__ inline int token_at(int i) {
  return i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2;
}

// Of a warpgroup.
__device__ inline void synchronize_group() {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + threadIdx.x / kWarpgroupSize), "n"(kWarpgroupSize)
               : "memory");
}

__device__ inline void store_shared_word(uint32_t address, uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

// Of a warp.
template <int kTokens, bool kGated, bool kImages>
class Output {
 public:
  __device__ Output(const MoeTermsArgs& args, const Shared<kTokens, kGated>& shared)
      : args_(args),
        shared_(shared),
        warp_(threadIdx.x / kWarpSize),
        g_(threadIdx.x % kWarpSize / 4) {}

  // Asks for what store() needs.
  __device__ __forceinline__ void begin(const MoeTile& tile) {
    tile_ = tile;
    const LaneRows rows = LaneRows::of<kGated, kImages>(args_.call.activation.is_interleaved, g_);
    for (int i = 0; i < 2; ++i) biases_[i] = bias_of(rows.row[i]);
#pragma unroll
    for (int n = 0; n < kTokens / 4; ++n) {
      const int row = tile.first_row + token_at(n);
      const bool exists = row < tile.end_row;
      if constexpr (kGated) {
        factors_[n] = exists ? gpu_load_from_l2(args_.scratch.x_scales + row) : 0.0f;
      } else {
        choices_[n] = exists ? gpu_load_from_l2(args_.tiles().choices + row) : -1;
      }
    }
    if constexpr (!kGated) {
#pragma unroll
      for (int n = 0; n < kTokens / 4; ++n) {
        factors_[n] = choices_[n] < 0 ? 0.0f : gpu_load_from_l2(args_.call.weights + choices_[n]);
      }
    }
  }

  // Of the tile's first kCount tokens.
  template <int kCount>
  __device__ __forceinline__ void store(const float (&sums)[kCount / 2]) {
    if constexpr (kGated) {
      store_activated<kCount>(sums);
    } else {
      store_weighted<kCount>(sums);
    }
  }

 private:
  // Of a row of the tile's.
  __device__ float bias_of(int row_of_tile) const {
    const int first = first_row_of<kGated>(args_, tile_.column_tile, row_of_tile / kHalfRows);
    const int row = min(first + row_of_tile % kHalfRows, args_.num_rows - 1);
    return bias_at(args_.own, tile_.expert, row, args_.num_rows);
  }

  __device__ float activated_of(float gate, float up) const {
    const GatedActivation& activation = args_.call.activation;
    return activation.kind == GatedActivationKind::kClampedSwiGlu
               ? clamped_swiglu(activation, gate, up)
               : silu_of(gate) * up;
  }

  // A warpgroup has 32 outputs, which share a scale of each token.
  template <int kCount>
  __device__ __forceinline__ void store_activated(const float (&sums)[kCount / 2]) {
    const LaneRows rows = LaneRows::of<kGated, kImages>(args_.call.activation.is_interleaved, g_);
    float values[kCount / 4];
    uint32_t largest[kCount / 4];
#pragma unroll
    for (int n = 0; n < kCount / 4; ++n) {
      const float unit = kUnit * factors_[n];
      const int at = n / 2 * 4 + n % 2;
      const float first = sums[at] * unit + biases_[0], second = sums[at + 2] * unit + biases_[1];
      values[n] = rows.is_swapped ? activated_of(second, first) : activated_of(first, second);
      largest[n] = __float_as_uint(values[n]) & 0x7fffffff;
    }
    share_largest<kCount>(largest);
    const int first_output = tile_.column_tile * kHalfRows + warp_ / kGroupWarps * 32;
    if (first_output >= args_.num_outputs) return;
    const int output = first_output + warp_ % kGroupWarps * 8 + g_;
    auto* high = static_cast<uint8_t*>(args_.tiles().activated) + place_of(output);
    auto* low = high + int64_t{args_.call.num_tokens} * args_.call.top_k * args_.num_outputs;
    const int num_groups = moe_term_groups(args_.num_outputs);
#pragma unroll
    for (int n = 0; n < kCount / 4; ++n) {
      const int row = tile_.first_row + token_at(n);
      if (row >= tile_.end_row) continue;
      const TermScale scale = scale_of_largest_bits(largest[n]);
      const Terms terms = terms_of(values[n] * scale.to, 0.0f);
      high[int64_t{row} * args_.num_outputs] = static_cast<uint8_t>(terms.high);
      low[int64_t{row} * args_.num_outputs] = static_cast<uint8_t>(terms.low);
      if (warp_ % kGroupWarps == 0 && g_ == 0) {
        args_.scratch.activated_scales[int64_t{row} * num_groups + first_output / 32] = scale.from;
      }
    }
  }

  // Of all lanes and warps of the warpgroup that have a token. One that writes to a buffer again
  // has been at the barrier between, and so have those that read it.
  template <int kCount>
  __device__ __forceinline__ void share_largest(uint32_t (&largest)[kCount / 4]) {
    const uint32_t memory = shared_.maxima(maxima_buffer_, warp_ / kGroupWarps);
    maxima_buffer_ ^= 1;
#pragma unroll
    for (int n = 0; n < kCount / 4; ++n) {
#pragma unroll
      for (int lanes = 4; lanes < kWarpSize; lanes *= 2) {
        largest[n] = max(largest[n], gpu_shuffle_xor(largest[n], lanes));
      }
      if (g_ == 0) {
        store_shared_word(memory + (warp_ % kGroupWarps * 16 + token_at(n)) * 4, largest[n]);
      }
    }
    synchronize_group();
#pragma unroll
    for (int n = 0; n < kCount / 4; ++n) {
#pragma unroll
      for (int w = 0; w < kGroupWarps; ++w) {
        largest[n] = max(largest[n], load_shared_word(memory + (w * 16 + token_at(n)) * 4));
      }
    }
  }

  template <int kCount>
  __device__ __forceinline__ void store_weighted(const float (&sums)[kCount / 2]) const {
    const LaneRows rows = LaneRows::of<kGated, kImages>(false, g_);
    auto* out = static_cast<BFloat16*>(args_.scratch.results);
#pragma unroll
    for (int n = 0; n < kCount / 4; ++n) {
      if (choices_[n] < 0) continue;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int output = tile_.column_tile * kTileRows + rows.row[i];
        if (output >= args_.num_outputs) continue;
        const float sum = sums[n / 2 * 4 + i * 2 + n % 2] * kUnit + biases_[i];
        out[int64_t{choices_[n]} * args_.num_outputs + output] =
            from_float<BFloat16>(factors_[n] * sum);
      }
    }
  }

  const MoeTermsArgs& args_;
  const Shared<kTokens, kGated>& shared_;
  const int warp_, g_;
  MoeTile tile_{};
  float biases_[2];
  float factors_[kTokens / 4];  // of tokens: scales of x, or weights of choices
  int choices_[kGated ? 1 : kTokens / 4];
  int maxima_buffer_ = 0;
};

}  // namespace atom::ops::device::terms
