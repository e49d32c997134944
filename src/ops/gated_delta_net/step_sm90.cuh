// Inside gated_delta_net on Hopper: what a step has of a sequence, and the convolution's channels.
#pragma once

#include "ops/device/elements.cuh"
#include "ops/device/silu.cuh"
#include "ops/gated_delta_net/gated_delta_net_kernels.h"
#include "ops/gated_delta_rule/recurrent/recurrent.cuh"

namespace atom::ops::delta_device {

constexpr int kHistory = 3;  // inputs before a token's own that its convolution takes

// A sequence's tokens of this step, and where its states are.
struct Sequence {
  int begin;
  int count;
  int slot;
  bool has_history;
  const int32_t* kept;  // by token, or null

  __device__ Sequence(const StateBatchArgs& batch, int64_t index)
      : begin(batch.query_start[index]),
        count(batch.query_start[index + 1] - begin),
        slot(batch.state_slots[index]),
        has_history(batch.seq_lens[index] > count),
        kept(batch.token_slots == nullptr ? nullptr : batch.token_slots + begin) {
    if (slot < 0) return;  // padding, of any number of rows
    if (count > kDeltaNetMaxTokens || slot >= batch.num_slots) gpu_trap();
    for (int i = 0; kept != nullptr && i < count; ++i) {
      if (kept[i] >= batch.num_slots) gpu_trap();
    }
  }
  // Where the state behind a token goes, or -1.
  __device__ int slot_behind(int token) const {
    if (kept != nullptr) return kept[token];
    return token == count - 1 ? slot : -1;
  }
};

// A token's convolution in one channel, by its input and those before.
template <typename T>
__device__ float convolved(const float (&weight)[kHistory + 1],
                           const float (&window)[kHistory + 1]) {
  float sum = 0;
#pragma unroll
  for (int j = 0; j <= kHistory; ++j) sum = fmaf(weight[j], window[j], sum);
  return device::round_to<T>(device::silu<device::kSiluFor<T>>(sum));
}

// One channel of the convolution.
template <typename T>
class Channel {
 public:
  __device__ Channel(const GatedDeltaNetArgs& args, int channel) : args_(args), channel_(channel) {
#pragma unroll
    for (int j = 0; j <= kHistory; ++j)
      weight_[j] = args.conv_weight[j * num_channels() + channel_];
  }

  // The inputs before the step's.
  __device__ void load_history(const Sequence& sequence) {
    const T* from = row_behind(sequence.slot);
#pragma unroll
    for (int j = 0; j < kHistory; ++j) {
      before_[j] = sequence.has_history ? from[j * num_channels()] : device::from_float<T>(0.0f);
    }
  }

  // The first token's, long before it is used.
  __device__ void load_input(const Sequence& sequence) {
    input_ = input(sequence, 0);
  }

  // Calls put(token, value).
  template <typename Put>
  __device__ void convolve(const Sequence& sequence, const Put& put) const {
    float window[kHistory + 1];
#pragma unroll
    for (int j = 0; j < kHistory; ++j) window[j + 1] = device::to_float(before_[j]);
    for (int token = 0; token < sequence.count; ++token) {
#pragma unroll
      for (int j = 0; j < kHistory; ++j) window[j] = window[j + 1];
      window[kHistory] = device::to_float(token == 0 ? input_ : input(sequence, token));
      put(token, convolved<T>(weight_, window));
    }
  }

  // After all blocks have their history.
  __device__ void keep(const Sequence& sequence) {
    for (int token = 0; token < sequence.count; ++token) {
      const int slot = sequence.slot_behind(token);
      if (slot < 0) continue;
      T* to = row_behind(slot);
#pragma unroll
      for (int j = 0; j < kHistory; ++j) {
        const int from = token + 1 - kHistory + j;
        T value = before_[kHistory - 1];
        if (from >= 0) {
          value = input(sequence, from);
        } else if (from == -3) {
          value = before_[0];
        } else if (from == -2) {
          value = before_[1];
        }
        to[j * num_channels()] = value;
      }
    }
  }

 private:
  __device__ int64_t num_channels() const {
    return (2 * args_.rule.num_k_heads + args_.rule.num_v_heads) * kDim;
  }
  __device__ T input(const Sequence& sequence, int token) const {
    const int64_t row = int64_t{sequence.begin} + token;
    return static_cast<const T*>(args_.rule.qkv)[row * args_.rule.qkv_stride + channel_];
  }
  __device__ T* row_behind(int64_t slot) const {
    return static_cast<T*>(args_.conv_state) + slot * kHistory * num_channels() + channel_;
  }

  const GatedDeltaNetArgs& args_;
  int channel_;
  float weight_[kHistory + 1];
  T before_[kHistory], input_;
};

}  // namespace atom::ops::delta_device
