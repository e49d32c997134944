// Inside latent attention for Hopper with a thread that relays: how the rows of a warpgroup weigh a
// tile's keys.
#pragma once

#include "ops/mla_attention/relay/item_reader.cuh"

namespace atom::ops::mla_device::relay {

using attention_device::exp2_fast;

// Thread (w, g, c) = (warp, lane / 4, lane % 4) has rows 16w + g and 16w + g + 8, and columns 2c
// and 2c + 1 of each 8.
class Softmax {
 protected:
  __device__ __forceinline__ Softmax(const Work& work, const Buffers& buffers)
      : work_(work),
        buffers_(buffers),
        row_(threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 32 / 4),
        scale_log2_(work.params.scale * attention_device::kLog2E) {}

  // How many of a tile's keys `indices` names, the first ones; without, all.
  __device__ __forceinline__ int count_named(const Item& item, int tile) const {
    if (!work_.has_indices()) return kKeys;
    const int32_t* indices = work_.params.indices + item.first_token * work_.params.top_k;
    const int key = tile * kKeys + static_cast<int>(threadIdx.x % 32);
    const bool low = key < item.num_keys && indices[key] >= 0;
    const bool high = key + 32 < item.num_keys && indices[key + 32] >= 0;
    return __popc(__ballot_sync(kAllLanes, low)) + __popc(__ballot_sync(kAllLanes, high));
  }

  __device__ __forceinline__ void mask(const Item& item, int tile, int num_named) {
    const int first_key = tile * kKeys;
    const bool all = work_.has_indices() ? num_named == kKeys : first_key + kKeys <= item.sure_keys;
    if (all) return;
    const int c = threadIdx.x & 3;
    // Of this thread's columns.
    const int limits[2] = {min(limit_[0] - first_key, num_named) - c * 2,
                           min(limit_[1] - first_key, num_named) - c * 2};
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      const int key = i / 4 * 8 + (i & 1);
      scores_[i] = key < limits[(i & 2) / 2] ? scores_[i] : -INFINITY;
    }
  }

  // The base of a row, at first its largest score, follows only a score that is larger by kSlack,
  // so that hardly any tile corrects what was added before.
  __device__ __forceinline__ void raise_bases(float (&correction)[2]) {
    constexpr float kSlack = 8;  // weights reach 2^kSlack
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float tops[2] = {-INFINITY, -INFINITY};
#pragma unroll
      for (int i = j * 2; i < kKeys / 2; i += 4) {
        float& top = tops[i / 4 % 2];
        top = fmaxf(top, fmaxf(scores_[i], scores_[i + 1]));
      }
      float top = fmaxf(tops[0], tops[1]);
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2)) * scale_log2_;
      const bool grows = top > base_[j] + kSlack;
      correction[j] = grows ? exp2_fast(base_[j] - top) : 1.f;
      base_[j] = grows ? top : base_[j];
    }
  }

  __device__ __forceinline__ void put_bases(int tile) const {
    if ((threadIdx.x & 3) != 0) return;
    buffers_.bases(tile)[row_] = base_[0];
    buffers_.bases(tile)[row_ + 8] = base_[1];
  }

  __device__ __forceinline__ void take_bases(int tile, float (&correction)[2]) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float base = buffers_.bases(tile)[row_ + j * 8];
      correction[j] = base == base_[j] ? 1.f : exp2_fast(base_[j] - base);
      base_[j] = base;
    }
  }

  // Scores become weights 2^(score - base), of which each thread sums its own keys'.
  __device__ __forceinline__ void weigh(const float (&correction)[2]) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float shift = base_[j] == -INFINITY ? 0.f : -base_[j];
      float totals[2] = {0, 0};
#pragma unroll
      for (int i = j * 2; i < kKeys / 2; i += 4) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          float& score = scores_[i + k];
          score = exp2_fast(fmaf(score, scale_log2_, shift));
          totals[k] += score;
        }
      }
      sum_[j] = sum_[j] * correction[j] + (totals[0] + totals[1]);
    }
    // The layout of the scores is that of a product's left operand.
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) {
      weights_[i] = attention_device::pack<gpu_bfloat16>(scores_[i * 2], scores_[i * 2 + 1]);
    }
  }

  __device__ __forceinline__ bool is_any(const float (&correction)[2]) const {
    return __any_sync(kAllLanes, correction[0] != 1.f || correction[1] != 1.f);
  }

  __device__ __forceinline__ void rescale(const float (&correction)[2]) {
#pragma unroll
    for (int i = 0; i < 128; ++i) out_[i] *= correction[(i & 2) / 2];
  }

  __device__ __forceinline__ void rescale_weights(const float (&correction)[2]) {
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) {
      const float factor = correction[i & 1];
      weights_[i] =
          attention_device::pack<gpu_bfloat16>(__uint_as_float(weights_[i] << 16) * factor,
                                               __uint_as_float(weights_[i] & 0xffff0000u) * factor);
    }
  }

  const Work& work_;
  const Buffers& buffers_;
  const int row_;
  const float scale_log2_;
  float out_[128];
  float scores_[kKeys / 2];
  uint32_t weights_[kKeys / 4];
  float base_[2];
  float sum_[2];
  int limit_[2];
};

}  // namespace atom::ops::mla_device::relay
