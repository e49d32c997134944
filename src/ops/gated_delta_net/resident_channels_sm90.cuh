// Inside gated_delta_net on Hopper, of blocks that stay for several sequences: a token's
// convolution.
#pragma once

#include "ops/gated_delta_net/resident_sm90.cuh"

namespace atom::ops::delta_device {

// The channels of the convolution that a thread has: of the query, the key and the heads' values
// one after the other every so many, at most kCount.
template <typename T, int kCount>
class TokenChannels {
 public:
  __device__ TokenChannels(const GatedDeltaNetArgs& args, const Place& place) : args_(args) {
    const int num_k_heads = static_cast<int>(args.rule.num_k_heads);
    num_channels_ = (2 * num_k_heads + static_cast<int>(args.rule.num_v_heads)) * kDim;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      own_[i] = place.thread + i * kResidentThreads;
      const int row = own_[i] / kDim;
      if (row >= 2 + place.num_heads) own_[i] = -1;
      const int head = row < 2 ? row * num_k_heads + place.key_head
                               : 2 * num_k_heads + place.first_head + row - 2;
      channel_[i] = head * kDim + place.thread % kDim;
      if (own_[i] < 0) continue;
#pragma unroll
      for (int j = 0; j <= kHistory; ++j) {
        weight_[i][j] = args.conv_weight[j * num_channels_ + channel_[i]];
      }
    }
  }

  __device__ void load_history(const Unit& unit) {
    if (unit.slot < 0) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int j = 0; j < kHistory; ++j) {
        before_[i][j] = own_[i] >= 0 && unit.has_history
                            ? gpu_load_from_l2(row_in(unit.slot, i) + j * num_channels_)
                            : device::from_float<T>(0.0f);
      }
    }
  }
  __device__ void load_inputs(const Unit& unit) {
    if (unit.slot < 0) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (own_[i] < 0) continue;
      input_[i] = gpu_load_from_l2(static_cast<const T*>(args_.rule.qkv) +
                                   unit.row * args_.rule.qkv_stride + channel_[i]);
    }
  }

  // To `token`, and the inputs that the next token takes to where they belong.
  __device__ void convolve(const Unit& unit, float* token) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (own_[i] < 0) continue;
      float window[kHistory + 1];
#pragma unroll
      for (int j = 0; j < kHistory; ++j) window[j] = device::to_float(before_[i][j]);
      window[kHistory] = device::to_float(input_[i]);
      token[own_[i]] = convolved<T>(weight_[i], window);
      if (unit.target < 0) continue;
      T* to = row_in(unit.target, i);
#pragma unroll
      for (int j = 0; j < kHistory; ++j) {
        to[j * num_channels_] = j + 1 < kHistory ? before_[i][j + 1] : input_[i];
      }
    }
  }

 private:
  __device__ T* row_in(int64_t slot, int i) const {
    return static_cast<T*>(args_.conv_state) + slot * kHistory * num_channels_ + channel_[i];
  }

  const GatedDeltaNetArgs& args_;
  int num_channels_;
  int own_[kCount], channel_[kCount];  // own: among the block's, or -1
  float weight_[kCount][kHistory + 1];
  T before_[kCount][kHistory], input_[kCount];
};

}  // namespace atom::ops::delta_device
