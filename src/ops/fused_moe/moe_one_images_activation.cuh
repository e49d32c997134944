// Inside fused_moe for one token by experts in MXFP4 as images on Hopper: numbers that become terms
// in shared memory, x and what is activated.
#pragma once

#include <limits>

#include "ops/fused_moe/moe_one_images_stage.cuh"
#include "ops/fused_moe/moe_terms_numbers.cuh"

namespace atom::ops::device::moe_one_images {

// Writes the token's terms, by all threads that multiply, of which each has eight columns. Returns
// what they are to be multiplied by.
__device__ inline float split_x(const FusedMoeGpuCall& call,
                                int token,
                                Shared& shared,
                                uint8_t* target) {
  const int column = static_cast<int>(threadIdx.x) * 8;
  const bool exists = column < call.hidden_size;
  const uint4 bits = exists ? load_bits_from_l2(moe_one::x_of(call, token) + column) : uint4{};
  const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
  uint32_t largest = 0;
#pragma unroll
  for (const uint32_t word : words) {
    largest = max(largest, max(word << 16 & 0x7fff0000, word & 0x7fff0000));
  }
  largest = __reduce_max_sync(0xffffffffu, largest);
  if (threadIdx.x % kWarpSize == 0) shared.maxima[threadIdx.x / kWarpSize] = largest;
  synchronize_first<kNumConsumers>();
#pragma unroll
  for (const uint32_t some : shared.maxima) largest = max(largest, some);
  const terms::TermScale scale = terms::scale_of_largest_bits(largest);
  if (!exists) return scale.from;
  uint8_t* const own =
      target + column / 32 * kBlockTermsSize + kZerosSize + column % 32 / 8 * sizeof(uint32_t);
#pragma unroll
  for (int odd = 0; odd < 2; ++odd) {
    const auto value = [&](int w) {
      return scale.to * __uint_as_float(odd == 0 ? words[w] << 16 : words[w] & 0xffff0000);
    };
    const terms::Terms first = terms::terms_of(value(0), value(1));
    const terms::Terms second = terms::terms_of(value(2), value(3));
    auto* const high = reinterpret_cast<uint32_t*>(own + odd * kHalfTermsSize);
    auto* const low = reinterpret_cast<uint32_t*>(own + odd * kHalfTermsSize + kRunSize);
    *high = first.high | second.high << 16;
    *low = first.low | second.low << 16;
  }
  return scale.from;
}

// Zeros where there are no terms. By all threads that multiply.
__device__ inline void clear_terms(const Layout& layout, uint8_t* memory) {
  const int first = layout.no_terms;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) * kVectorSize; i < layout.scales - first;
       i += kNumConsumers * kVectorSize) {
    *reinterpret_cast<uint4*>(memory + first + i) = uint4{};
  }
}

// silu or the clamped activation by the same instructions, because code that runs once has to be
// fetched from far away.
class Activation {
 public:
  __device__ explicit Activation(const GatedActivation& activation)
      : is_clamped_(activation.kind == GatedActivationKind::kClampedSwiGlu),
        limit_(is_clamped_ ? activation.limit : std::numeric_limits<float>::infinity()),
        alpha_(is_clamped_ ? activation.alpha : 1.0f),
        to_up_(is_clamped_ ? 1.0f : 0.0f) {}

  // Comparisons keep a NaN.
  __device__ float of(float gate, float up) const {
    if (gate > limit_) gate = limit_;
    if (up > limit_) up = limit_;
    if (up < -limit_) up = -limit_;
    return __fdividef(gate, 1.0f + __expf(-alpha_ * gate)) * (up + to_up_);
  }

 private:
  const bool is_clamped_;
  const float limit_, alpha_, to_up_;
};

// Where the gates and ups of an image's columns are: in two tiles of sums.
struct GateTiles {
  int place[2];  // of the tile's first row
  int num_parts[2];
  int choice;

  __device__ GateTiles(
      const FusedMoeGpuCall& call, int token, const Images& gates, int own_choice, int column)
      : choice(own_choice) {
    const int tiles = 2 * call.intermediate_size / kImageRows;
    const bool interleaved = call.activation.is_interleaved;
    const int first = choice * tiles + (interleaved ? 2 * column : column);
    const int own[2] = {first, interleaved ? first + 1 : first + tiles / 2};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      place[i] = first_gate_of(call, token) + own[i] * kImageRows;
      num_parts[i] = gates.num_parts_of(own[i]);
    }
  }
};

static_assert(sizeof(GateTiles) == kGateTilesSize);

// What a lane activates of an image: two outputs that are side by side.
class LaneGates {
 public:
  // Asks for sums, of which each part has `count`.
  __device__ __forceinline__ void load(const GateTiles& tiles,
                                       bool interleaved,
                                       const float* sums,
                                       int count) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int tile = interleaved ? lane / 16 : 0;
    num_parts_[0] = tiles.num_parts[tile];
    num_parts_[1] = interleaved ? num_parts_[0] : tiles.num_parts[1];
    own_ = sums + tiles.place[tile] + (interleaved ? lane % 16 * 4 : 2 * lane);
    to_ups_ = interleaved ? 2 : tiles.place[1] - tiles.place[0];
    first_ = load_part(0, interleaved, count);
    second_ = load_part(1, interleaved, count);
  }

  __device__ __forceinline__ float2 activated(const Activation& activation,
                                              bool interleaved,
                                              int count) const {
    float4 sum = add(first_, second_);
    // Of small matrices more blocks have parts of a tile.
#pragma unroll 1
    for (int part = 2; part < max(num_parts_[0], num_parts_[1]); ++part) {
      sum = add(sum, load_part(part, interleaved, count));
    }
    return {activation.of(sum.x, interleaved ? sum.y : sum.z),
            activation.of(interleaved ? sum.z : sum.y, sum.w)};
  }

 private:
  // Zeros of what no block has.
  __device__ __forceinline__ float4 load_part(int part, bool interleaved, int count) const {
    const float* const source = own_ + int64_t{part} * count;
    if (interleaved) {
      return part < num_parts_[0] ? gpu_load_from_l2(reinterpret_cast<const float4*>(source))
                                  : float4{};
    }
    const auto pair = [&](int i) {
      const float* const own = source + i * to_ups_;
      return part < num_parts_[i] ? gpu_load_from_l2(reinterpret_cast<const float2*>(own))
                                  : float2{};
    };
    const float2 gates = pair(0), ups = pair(1);
    return {gates.x, gates.y, ups.x, ups.y};
  }
  static __device__ float4 add(const float4& a, const float4& b) {
    return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
  }

  int num_parts_[2], to_ups_;
  const float* own_;
  float4 first_, second_;
};

// Writes an image's terms and the scales of its two blocks, by a warp.
__device__ inline void split_activated(float2 values, uint8_t* image, float* scales) {
  constexpr int kLanes = kWarpSize / kImageBlocks;  // of a block
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  uint32_t largest =
      max(__float_as_uint(values.x) & 0x7fffffff, __float_as_uint(values.y) & 0x7fffffff);
#pragma unroll
  for (int other = 1; other < kLanes; other *= 2) {
    largest = max(largest, gpu_shuffle_xor(largest, other));
  }
  const terms::TermScale scale = terms::scale_of_largest_bits(largest);
  const terms::Terms split = terms::terms_of(values.x * scale.to, values.y * scale.to);
  uint8_t* const even = image + lane / kLanes * kBlockTermsSize + kZerosSize + lane % kLanes;
  uint8_t* const odd = even + kHalfTermsSize;
  even[0] = static_cast<uint8_t>(split.high);
  even[kRunSize] = static_cast<uint8_t>(split.low);
  odd[0] = static_cast<uint8_t>(split.high >> 8);
  odd[kRunSize] = static_cast<uint8_t>(split.low >> 8);
  if (lane % kLanes == 0) scales[lane / kLanes] = scale.from;
}

}  // namespace atom::ops::device::moe_one_images
