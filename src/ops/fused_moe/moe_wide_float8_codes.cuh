// Inside fused_moe by wide tiles in FP8 on Hopper: what becomes of a tile's sums with the
// activation.
#pragma once

#include "ops/fused_moe/moe_fast_activation.cuh"
#include "ops/fused_moe/moe_wide_float8_sums.cuh"

namespace atom::ops::device::wide8 {

// With the activation: the first product has gates, the second their ups. Codes of a token's 128
// outputs have one scale.
class CodeOutput {
 public:
  __device__ CodeOutput(const MoeWideFloat8Args& args, uint32_t memory)
      : args_(args),
        activation_(args.call.activation),
        codes_(memory),
        largest_(codes_ + kCodesSize),
        factors_(largest_ + kLargestSize) {}

  __device__ void begin(const Tile&) {}
  __device__ void continue_to_begin() {}
  __device__ void finish() const {}

  template <int kUnits>
  __device__ __forceinline__ void store(const Tile& tile, Sums<kUnits>& sums) const {
    activate<kUnits>(tile, sums);
    see_largest<kUnits>(sums[0]);
    synchronize_first<kNumConsumers>();
    choose_scales<kUnits>(tile);
    synchronize_first<kNumConsumers>();
    store_codes<kUnits>(sums[0]);
    synchronize_first<kNumConsumers>();
    copy_codes<kUnits>(tile);
  }

 private:
  template <int kUnits>
  __device__ __forceinline__ void activate(const Tile& tile, Sums<kUnits>& sums) const {
    const int first = tile.column_tile * kBlockRows + at_.warp * 16 + at_.g;
    const bool interleaved = args_.call.activation.is_interleaved;
    const int stride = interleaved ? 2 : 1, to_up = interleaved ? 1 : args_.num_rows / 2;
    const int gates[2] = {stride * first, stride * (first + 8)};
    scale_rows<kUnits>(
        args_, tile, {{gates[0], gates[1]}, {gates[0] + to_up, gates[1] + to_up}}, sums);
    if (activation_.is_clamped()) {
      activate_as<kUnits, true>(sums);
    } else {
      activate_as<kUnits, false>(sums);
    }
    const bool exists[2] = {first < args_.num_outputs, first + 8 < args_.num_outputs};
    if (exists[0] && exists[1]) return;
#pragma unroll
    for (int i = 0; i < 8 * kUnits; ++i) sums[0][i] = exists[i / 2 % 2] ? sums[0][i] : 0.0f;
  }

  template <int kUnits, bool kClamped>
  __device__ __forceinline__ void activate_as(Sums<kUnits>& sums) const {
#pragma unroll
    for (int i = 0; i < 8 * kUnits; i += 2) {
      float gates[2] = {sums[0][i], sums[0][i + 1]};
      activation_.apply<kClamped>(gates, {sums[1][i], sums[1][i + 1]});
      sums[0][i] = gates[0];
      sums[0][i + 1] = gates[1];
    }
  }

  // Of the warp's 16 outputs of each token. Lanes exchange halves of what they have to reduce.
  template <int kUnits>
  __device__ __forceinline__ void see_largest(const float (&values)[8 * kUnits]) const {
    const bool has_second_eight = (at_.g & 1) != 0, is_odd = (at_.g & 2) != 0;
    const int token = 2 * at_.q + (has_second_eight ? 8 : 0) + (is_odd ? 1 : 0);
    const uint32_t target = largest_ + (at_.warp * kTileTokens + token) * 4;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      float of_token[4];
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        of_token[t] =
            fmaxf(fabsf(values[place_of_sum(u, t, 0)]), fabsf(values[place_of_sum(u, t, 1)]));
      }
      const float even = larger(of_token[0], of_token[2], has_second_eight, 4);
      const float odd = larger(of_token[1], of_token[3], has_second_eight, 4);
      float own = larger(even, odd, is_odd, 8);
      own = fmaxf(own, __shfl_xor_sync(0xffffffffu, own, 16));
      if (at_.lane < 16) store_shared_float(target + u * kTokenUnit * 4, own);
    }
  }

  // A token for each thread.
  template <int kUnits>
  __device__ __forceinline__ void choose_scales(const Tile& tile) const {
    const int token = threadIdx.x;
    if (token >= kUnits * kTokenUnit) return;
    float largest = 0;
#pragma unroll
    for (int w = 0; w < kConsumerWarps; ++w) {
      largest = fmaxf(largest, load_shared_float(largest_ + (w * kTileTokens + token) * 4));
    }
    // Of less than that the codes are zeros, and no reciprocal is infinite.
    const float scale = largest > 0x1p-100f ? largest / kFloat8Max : 1.0f;
    store_shared_float(factors_ + token * 4, 1.0f / scale);
    const int row = tile.first_row + token;
    if (row >= tile.end_row) return;
    const int64_t group = tile.column_tile;
    args_.scratch.activated_scales[group * args_.rows_of_scales + row] = scale;
  }

  // A token's codes of a warp are in the order 0, 8, 1, 9 ..., because a lane has rows g and g + 8.
  template <int kUnits>
  __device__ __forceinline__ void store_codes(const float (&values)[8 * kUnits]) const {
    const uint32_t target = codes_ + 2 * at_.q * kCodeStride + at_.warp * 16 + 2 * at_.g;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const int token = u * kTokenUnit + t / 2 * 8 + t % 2;  // and twice q
        const float factor = load_shared_float(factors_ + (token + 2 * at_.q) * 4);
        const uint32_t codes = float8_pair(values[place_of_sum(u, t, 0)] * factor,
                                           values[place_of_sum(u, t, 1)] * factor);
        asm volatile("st.shared.b16 [%0], %1;" ::"r"(target + token * kCodeStride),
                     "h"(static_cast<uint16_t>(codes))
                     : "memory");
      }
    }
  }

  // Vectors of 16 outputs.
  template <int kUnits>
  __device__ __forceinline__ void copy_codes(const Tile& tile) const {
    constexpr int kVectors = kBlockRows / kVectorSize;
    constexpr uint32_t kFirstRows = 0x6420, kOtherRows = 0x7531;
    auto* const out = static_cast<uint8_t*>(args_.scratch.shared.activated);
    const int vector = threadIdx.x % kVectors;
    const int output = tile.column_tile * kBlockRows + vector * kVectorSize;
    if (output >= args_.num_outputs) return;
#pragma unroll
    for (int first = 0; first < kUnits * kTokenUnit; first += kNumConsumers / kVectors) {
      const int token = first + threadIdx.x / kVectors, row = tile.first_row + token;
      if (token >= kUnits * kTokenUnit || row >= tile.end_row) break;
      const uint4 mixed = load_shared(codes_ + token * kCodeStride + vector * kVectorSize);
      store_bits(out + int64_t{row} * args_.num_outputs + output,
                 uint4{__byte_perm(mixed.x, mixed.y, kFirstRows),
                       __byte_perm(mixed.z, mixed.w, kFirstRows),
                       __byte_perm(mixed.x, mixed.y, kOtherRows),
                       __byte_perm(mixed.z, mixed.w, kOtherRows)});
    }
  }

  const MoeWideFloat8Args& args_;
  const FastActivation activation_;
  const Place at_;
  const uint32_t codes_, largest_, factors_;
};

}  // namespace atom::ops::device::wide8
