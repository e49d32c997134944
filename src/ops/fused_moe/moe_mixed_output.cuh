// Inside fused_moe by MXFP4 and FP8: what becomes of a tile's sums.
#pragma once

#include "ops/fused_moe/moe_fast_activation.cuh"
#include "ops/fused_moe/moe_mixed_codes.cuh"
#include "ops/fused_moe/moe_stream_math.cuh"

namespace atom::ops::device::mixed {

// Of a warpgroup.
__device__ inline void synchronize_group(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kWarpgroupSize) : "memory");
}

// A warpgroup's outputs, by tokens: 32 activated ones or 64 results. They are turned in shared
// memory, where a token's vectors have places by its number, and leave in whole rows.
template <bool kGated>
class Output {
 public:
  __device__ Output(const MoeMixedArgs& args, const Shared<kGated>& shared)
      : args_(args),
        activation_(args.call.activation),
        warp_(__shfl_sync(kAllLanes, threadIdx.x / kWarpSize, 0)),
        memory_(shared.output(group())) {}

  // Asks for what store() needs.
  __device__ __forceinline__ void begin(const Tile& tile) {
    const LaneRows rows = LaneRows::of<kGated>(threadIdx.x % kWarpSize / 4);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = min(tile.first_matrix_row + rows.row[i], args_.num_rows - 1);
      biases_[i] = bias_at(args_.own, tile.expert, row, args_.num_rows);
    }
  }

  // `units`: where those of the tile's rows are.
  __device__ __forceinline__ void store(const Tile& tile,
                                        float (&sums)[kTokens / 2],
                                        uint32_t units) {
    const LaneRows rows = LaneRows::of<kGated>(threadIdx.x % kWarpSize / 4);
    float factors[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      factors[i] = __uint_as_float(load_shared_word(units + 4 * rows.row[i]));
#pragma unroll
    for (int at = 0; at < kTokens / 2; ++at) {
      sums[at] = fmaf(sums[at], factors[at / 2 % 2], biases_[at / 2 % 2]);
    }
    // Those that read what was stored before have come.
    synchronize_group(group());
    if constexpr (kGated) {
      if (activation_.is_clamped()) {
        turn_activated<true>(sums, rows.is_swapped);
      } else {
        turn_activated<false>(sums, rows.is_swapped);
      }
    } else {
      turn_results(sums);
    }
    synchronize_group(group());
    store_rows(tile);
  }

 private:
  static constexpr uint32_t kAllLanes = 0xffffffffu;
  static constexpr int kOutputs = kGated ? kGroupRows / 2 : kGroupRows;
  static constexpr int kRowVectors = kOutputs * 2 / kVectorSize, kRowBytes = kOutputs * 2;
  static constexpr int kEights = kTokens / 8;

  __device__ int group() const {
    return warp_ / (kWarpgroupSize / kWarpSize);
  }
  __device__ int warp_of_group() const {
    return warp_ % (kWarpgroupSize / kWarpSize);
  }

  static __device__ uint32_t place_of(int token, int vector) {
    // Of rows of 64 bytes two fill all banks.
    const int turn = kRowVectors == 8 ? token % 8 : token / 2 % 4;
    return token * kRowBytes + (vector ^ turn) * kVectorSize;
  }

  template <bool kClamped>
  __device__ __forceinline__ void turn_activated(const float (&sums)[kTokens / 2],
                                                 bool is_swapped) const {
    const int lane = threadIdx.x % kWarpSize;
    uint32_t pairs[kEights];
#pragma unroll
    for (int j = 0; j < kEights; ++j) {
      const float* const some = sums + 4 * j;
      float gates[2] = {is_swapped ? some[2] : some[0], is_swapped ? some[3] : some[1]};
      activation_.apply<kClamped>(gates,
                                  {is_swapped ? some[0] : some[2], is_swapped ? some[1] : some[3]});
      pairs[j] = bits_of_pair<BFloat16>(gates[0], gates[1]);
    }
#pragma unroll
    for (int first = 0; first < kEights; first += 4) {
      const int j = first + 4 <= kEights ? first : kEights - 4;
      const int token = (j + lane / 8) * 8 + lane % 8;
      store_transposed(memory_ + place_of(token, warp_of_group()),
                       {pairs[j], pairs[j + 1], pairs[j + 2], pairs[j + 3]});
    }
  }

  __device__ __forceinline__ void turn_results(const float (&sums)[kTokens / 2]) const {
    const int lane = threadIdx.x % kWarpSize;
#pragma unroll
    for (int j = 0; j < kEights; j += 2) {
      uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        pairs[i] = bits_of_pair<BFloat16>(sums[4 * j + 2 * i], sums[4 * j + 2 * i + 1]);
      }
      const int token = (j + lane / 16) * 8 + lane % 8;
      store_transposed(memory_ + place_of(token, warp_of_group() * 2 + lane / 8 % 2), pairs);
    }
  }

  __device__ __forceinline__ void store_rows(const Tile& tile) const {
    const int thread = threadIdx.x % kWarpgroupSize;
    const int vector = thread % kRowVectors;
    const int first = tile.first_matrix_row / (kGated ? 2 : 1) + group() * kOutputs;
    const int output = first + vector * (kVectorSize / 2);
    if (output >= args_.num_outputs) return;
    const int count = tile.end_row - tile.first_row;
    auto* const out = static_cast<BFloat16*>(args_.scratch.values) +
                      int64_t{tile.first_row} * args_.num_outputs + output;
#pragma unroll 3
    for (int token = thread / kRowVectors; token < count; token += kWarpgroupSize / kRowVectors) {
      store_bits(out + int64_t{token} * args_.num_outputs,
                 load_shared(memory_ + place_of(token, vector)));
    }
  }

  const MoeMixedArgs& args_;
  const FastActivation activation_;
  const int warp_;
  const uint32_t memory_;
  float biases_[2];
};

}  // namespace atom::ops::device::mixed
