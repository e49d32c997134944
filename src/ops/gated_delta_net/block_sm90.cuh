// Inside gated_delta_net on Hopper: a block, which has some columns of one value head's state. The
// blocks of a key head are a cluster, because they all convolve its queries and keys, whose last
// inputs one of them then replaces, and because a value head's norm is over all its columns.
#pragma once

#include "ops/device/matrix_units.cuh"
#include "ops/gated_delta_net/step_sm90.cuh"
#include "ops/quantize/quantize_device.cuh"

namespace atom::ops::delta_device {

constexpr int kMaxTokens = kDeltaNetMaxTokens;
constexpr int kMaxSplits = 4;
constexpr int kMaxCluster = 8;
static_assert(kMaxTokens <= kTokenBatch);

template <int kColumns>
struct Shared {
  RecurrentShared<kColumns> rule;
  // Of each block of the value head: the sum of the squares of its results, and the largest one
  // with its gate.
  float2 parts[kMaxTokens][kMaxSplits];
};

// Where a block stands.
template <int kColumns>
struct Place {
  static constexpr int kSplits = kDim / kColumns;
  int head, key_head;
  int column;
  int split;
  int first_rank;  // of the value head's blocks in the cluster

  __device__ explicit Place(const GatedDeltaRuleArgs& args) {
    const int heads_per_key =
        static_cast<int>(args.num_v_heads) / static_cast<int>(args.num_k_heads);
    head = static_cast<int>(blockIdx.x) / kSplits;
    key_head = head / heads_per_key;
    split = static_cast<int>(blockIdx.x) % kSplits;
    column = split * kColumns;
    first_rank = (head - key_head * heads_per_key) * kSplits;
  }
  __device__ float* state_in(const GatedDeltaRuleArgs& args, int64_t slot) const {
    return args.state + (slot * args.num_v_heads + head) * kDim * kDim + column;
  }
};

// What a token's norm is made of, by one warp, to all blocks of the value head. Results with their
// gates are where the values were.
template <int kColumns>
__device__ void share_parts(int token, const Place<kColumns>& place, Shared<kColumns>& shared) {
  const int lane = threadIdx.x % device::kWarpSize;
  float sum = 0, largest = 0;
#pragma unroll
  for (int i = 0; i < kColumns; i += device::kWarpSize) {
    const float x = shared.rule.out[token][i + lane];
    sum += device::reduce_lanes(x * x, device::kWarpSize, device::Sum{});
    largest = fmaxf(largest, fabsf(shared.rule.v[token][i + lane]));
  }
  largest = device::reduce_lanes(largest, device::kWarpSize, device::Largest{});
  if (lane >= Place<kColumns>::kSplits) return;
  const auto own =
      static_cast<uint32_t>(__cvta_generic_to_shared(&shared.parts[token][place.split]));
  const uint32_t target = device::address_in(place.first_rank + lane, own);
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(target), "f"(sum), "f"(largest)
               : "memory");
}

__device__ inline void synchronize_cluster() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// The norm of the results, and their gates. Each thread has one column, and of several tokens every
// so many.
template <typename T, int kColumns>
class GatedNorm {
 public:
  __device__ GatedNorm(const GatedDeltaNetArgs& args, const Place<kColumns>& place)
      : args_(args),
        place_(place),
        own_(threadIdx.x % kColumns),
        first_(threadIdx.x / kColumns),
        column_(place.head * kDim + place.column + own_),
        weight_(args.norm_weight[place.column + own_]) {}

  // The first gate, long before it is used.
  __device__ void load(const Sequence& sequence) {
    if (first_ < sequence.count) gate_ = gate(sequence, first_);
  }

  // Multiplies the results by weights and gates and leaves them where the values were.
  __device__ void multiply(const Sequence& sequence, RecurrentShared<kColumns>& shared) const {
    for (int token = first_; token < sequence.count; token += kTokensAtOnce) {
      const float z = device::to_float(token == first_ ? gate_ : gate(sequence, token));
      shared.v[token][own_] = shared.out[token][own_] * (weight_ * (z / (1.0f + expf(-z))));
    }
  }

  // The norm's factor is last, and no product or rounding changes an order: with it the largest
  // magnitude is that of the largest one without.
  __device__ void store(const Sequence& sequence, const Shared<kColumns>& shared) const {
    for (int token = first_; token < sequence.count; token += kTokensAtOnce) {
      float squares = 0, largest = 0;
#pragma unroll
      for (int i = 0; i < Place<kColumns>::kSplits; ++i) {
        squares += shared.parts[token][i].x;
        largest = fmaxf(largest, shared.parts[token][i].y);
      }
      const float factor = 1.0f / sqrtf(squares / static_cast<float>(kDim) + args_.eps);
      const float y = shared.rule.v[token][own_] * factor;
      const int64_t row = int64_t{sequence.begin} + token;
      if (args_.codes.values == nullptr) {
        static_cast<T*>(args_.rule.out)[row * args_.rule.out_stride + column_] =
            device::from_float<T>(y);
      } else {
        store_code(row, device::round_to<T>(y), device::round_to<T>(largest * factor));
      }
    }
  }

 private:
  static constexpr int kTokensAtOnce = kRecurrentThreads / kColumns;

  __device__ T gate(const Sequence& sequence, int token) const {
    const int64_t row = int64_t{sequence.begin} + token;
    return static_cast<const T*>(args_.z)[row * args_.z_stride + column_];
  }

  // A value head is a group.
  __device__ void store_code(int64_t row, float y, float largest) const {
    const float scale = scale_of_largest(largest);
    args_.codes.values[row * args_.codes.values_stride + column_] = float8_code(y, scale).bits;
    if (own_ + place_.split == 0) {
      args_.codes.scales[row * args_.rule.num_v_heads + place_.head] = scale;
    }
  }

  const GatedDeltaNetArgs& args_;
  const Place<kColumns>& place_;
  const int own_, first_, column_;
  const float weight_;
  T gate_ = {};
};

template <typename T, int kColumns>
__device__ void store_zeros(const GatedDeltaNetArgs& args,
                            const Sequence& sequence,
                            const Place<kColumns>& place) {
  const int first = place.head * kDim + place.column;
  for (int i = threadIdx.x; i < sequence.count * kColumns; i += kRecurrentThreads) {
    const int64_t row = int64_t{sequence.begin} + i / kColumns;
    const int column = first + i % kColumns;
    if (args.codes.values == nullptr) {
      static_cast<T*>(args.rule.out)[row * args.rule.out_stride + column] =
          device::from_float<T>(0.0f);
      continue;
    }
    args.codes.values[row * args.codes.values_stride + column] = 0;
    if (column % kDim == 0) args.codes.scales[row * args.rule.num_v_heads + place.head] = 1;
  }
}

// The rule's results, rounded, are in shared memory behind the next barrier.
template <typename T, int kColumns>
__device__ void advance_tokens(const GatedDeltaRuleArgs& rule,
                               const Sequence& sequence,
                               const Place<kColumns>& place,
                               const GateInputs& gates,
                               StateTile<kColumns>& tile,
                               RecurrentShared<kColumns>& shared) {
  const int warp = threadIdx.x / device::kWarpSize;
  if (warp < sequence.count) find_factors(gates, warp, shared);
  __syncthreads();
  for (int token = 0; token < sequence.count; ++token) {
    tile.advance(token, shared);
    const int slot = sequence.slot_behind(token);
    if (slot >= 0) tile.store(place.state_in(rule, slot));
  }
  if (threadIdx.x >= kColumns) return;
  for (int token = 0; token < sequence.count; ++token) {
    float& result = shared.out[token][threadIdx.x];
    result = device::round_to<T>(result);
  }
}

}  // namespace atom::ops::delta_device
