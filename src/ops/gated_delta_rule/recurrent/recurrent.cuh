// Inside the recurrence on a GPU, for heads of 128 x 128: some columns of a value head's state in
// the registers of a block, and its steps from token to token.
//
// With S the state before a token, q and k not normalized yet and r their factors, one pass over
// the registers gives S^T k and S^T q, from which
//   u = beta (v - decay r_k S^T k),  out = decay r_q S^T q + r_q r_k (q.k) u,
//   S = decay S + k (r_k u)^T
#pragma once

#include "ops/device/elements.cuh"
#include "ops/device/reductions.cuh"
#include "ops/gated_delta_rule/gated_delta_rule_kernels.h"

namespace atom::ops::delta_device {

constexpr int kDim = 128;  // of a head
constexpr int kRecurrentThreads = 256;
constexpr int kRecurrentWarps = kRecurrentThreads / device::kWarpSize;
// Blocks of a multiprocessor, by the registers that a tile takes.
constexpr int recurrent_blocks(int columns) {
  return columns == 128 ? 2 : 3;
}
// Tokens whose inputs are prepared together, each by a warp.
constexpr int kTokenBatch = kRecurrentWarps;

// What of a token is the same for all columns.
struct TokenFactors {
  float decay;
  float beta;
  float k_factor;  // 1 / |k|
  float q_factor;  // 1 / (|q| sqrt(head_k_dim))
  float qk;        // of the normalized ones
};

template <int kColumns>
struct RecurrentShared {
  float q[kTokenBatch][kDim];
  float k[kTokenBatch][kDim];
  float v[kTokenBatch][kColumns];
  float out[kTokenBatch][kColumns];
  float parts[2][kRecurrentWarps][kColumns];  // of S^T k and S^T q, by warp
  float update[kColumns];
  TokenFactors factors[kTokenBatch];
};

// What a token's gates are made of, loaded long before it is used.
struct GateInputs {
  float a, b;           // of the token
  float rate, dt_bias;  // of the value head

  __device__ GateInputs(const GatedDeltaRuleArgs& args, int64_t head)
      : a(0), b(0), rate(expf(args.a_log[head])), dt_bias(args.dt_bias[head]) {}

  template <typename T>
  __device__ void load(const GatedDeltaRuleArgs& args, int64_t token, int64_t head) {
    a = device::to_float(static_cast<const T*>(args.a)[token * args.a_stride + head]);
    b = device::to_float(static_cast<const T*>(args.b)[token * args.b_stride + head]);
  }
};

// The gates of a token and the norms of its query and key, which are in shared memory: by one warp.
template <int kColumns>
__device__ inline void find_factors(const GateInputs& gates,
                                    int place,
                                    RecurrentShared<kColumns>& shared) {
  const int lane = threadIdx.x % device::kWarpSize;
  const float4 q = reinterpret_cast<const float4*>(shared.q[place])[lane];
  const float4 k = reinterpret_cast<const float4*>(shared.k[place])[lane];
  const auto dot = [](const float4& x, const float4& y) {
    return fmaf(x.x, y.x, fmaf(x.y, y.y, fmaf(x.z, y.z, x.w * y.w)));
  };
  const float qq = device::reduce_lanes(dot(q, q), device::kWarpSize, device::Sum{});
  const float kk = device::reduce_lanes(dot(k, k), device::kWarpSize, device::Sum{});
  const float qk = device::reduce_lanes(dot(q, k), device::kWarpSize, device::Sum{});
  if (lane != 0) return;
  const float a = gates.a + gates.dt_bias;
  TokenFactors& factors = shared.factors[place];
  factors.decay = expf(-gates.rate * (a > 20.0f ? a : log1pf(expf(a))));
  factors.beta = 1.0f / (1.0f + expf(-gates.b));
  factors.k_factor = 1.0f / sqrtf(kk + 1e-6f);
  factors.q_factor = 1.0f / (sqrtf(qq + 1e-6f) * sqrtf(static_cast<float>(kDim)));
  factors.qk = qk * factors.k_factor * factors.q_factor;
}

// Columns of a value head's state in a slot, from `column` on.
class StateColumns {
 public:
  __device__ StateColumns(const GatedDeltaRuleArgs& args, int64_t slot, int64_t head, int column)
      : state_(args.state),
        offset_((slot * args.num_v_heads + head) * kDim * kDim + column),
        is_float32_(args.state_element == Element::kFloat32) {}

  // Four of a row.
  __device__ float4 load(int row, int column) const {
    if (is_float32_) return gpu_load_once(reinterpret_cast<const float4*>(at<float>(row, column)));
    return widened(gpu_load_once(reinterpret_cast<const uint2*>(at<uint16_t>(row, column))));
  }
  // -> what the slot has now.
  __device__ float4 store(int row, int column, const float4& value) const {
    if (is_float32_) {
      gpu_store_once(reinterpret_cast<float4*>(at<float>(row, column)), value);
      return value;
    }
    const uint2 bits = {pair_of(value.x, value.y), pair_of(value.z, value.w)};
    gpu_store_once(reinterpret_cast<uint2*>(at<uint16_t>(row, column)), bits);
    return widened(bits);
  }
  // Four of bfloat16.
  static __device__ float4 widened(const uint2& bits) {
    return {__uint_as_float(bits.x << 16),
            __uint_as_float(bits.x & 0xffff0000u),
            __uint_as_float(bits.y << 16),
            __uint_as_float(bits.y & 0xffff0000u)};
  }

 private:
  template <typename Stored>
  __device__ Stored* at(int row, int column) const {
    return static_cast<Stored*>(state_) + offset_ + row * kDim + column;
  }
  static __device__ uint32_t bits_of(float x) {
    return __float_as_uint(device::round_to<device::BFloat16>(x)) >> 16;
  }
  static __device__ uint32_t pair_of(float x, float y) { return bits_of(x) | bits_of(y) << 16; }

  void* const state_;
  const int64_t offset_;  // elements
  const bool is_float32_;
};

// All rows of kColumns columns. A thread has four columns of kRows rows; the lanes of a warp have
// whole rows of the tile between them.
template <int kColumns>
class StateTile {
 public:
  static constexpr int kLanesOfRow = kColumns / 4;
  static constexpr int kGroupsOfWarp = device::kWarpSize / kLanesOfRow;
  static constexpr int kRows = kDim / (kRecurrentWarps * kGroupsOfWarp);
  static_assert(kRows % 4 == 0);

  __device__ StateTile()
      : column_(threadIdx.x % kLanesOfRow * 4), row_(threadIdx.x / kLanesOfRow * kRows) {}

  // `state` begins at the tile's first column.
  template <typename Columns>
  __device__ void load(const Columns& state) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) value_[i] = state.load(row_ + i, column_);
  }
  // The tile goes on from what the slot has.
  __device__ void store(const StateColumns& state) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) value_[i] = state.store(row_ + i, column_, value_[i]);
  }
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) value_[i] = {0, 0, 0, 0};
  }

  // By all threads; `shared.out` has the result behind the next barrier.
  __device__ void advance(int place, RecurrentShared<kColumns>& shared) {
    add_products(place, shared);
    __syncthreads();
    const TokenFactors factors = shared.factors[place];
    if (threadIdx.x < kColumns) {
      const int column = threadIdx.x;
      float known = 0, result = 0;
#pragma unroll
      for (int warp = 0; warp < kRecurrentWarps; ++warp) {
        known += shared.parts[0][warp][column];
        result += shared.parts[1][warp][column];
      }
      known *= factors.decay * factors.k_factor;
      const float update = factors.beta * (shared.v[place][column] - known);
      shared.update[column] = update * factors.k_factor;
      shared.out[place][column] =
          fmaf(factors.qk, update, factors.decay * factors.q_factor * result);
    }
    __syncthreads();
    const float4 update = *reinterpret_cast<const float4*>(shared.update + column_);
#pragma unroll
    for (int i = 0; i < kRows; i += 4) {
      const float4 k = *reinterpret_cast<const float4*>(shared.k[place] + row_ + i);
      add_outer(value_[i], factors.decay, k.x, update);
      add_outer(value_[i + 1], factors.decay, k.y, update);
      add_outer(value_[i + 2], factors.decay, k.z, update);
      add_outer(value_[i + 3], factors.decay, k.w, update);
    }
  }

 private:
  static __device__ void add(float4& sum, float factor, const float4& s) {
    sum.x = fmaf(factor, s.x, sum.x);
    sum.y = fmaf(factor, s.y, sum.y);
    sum.z = fmaf(factor, s.z, sum.z);
    sum.w = fmaf(factor, s.w, sum.w);
  }
  static __device__ void add_outer(float4& s, float decay, float k, const float4& update) {
    s.x = fmaf(decay, s.x, k * update.x);
    s.y = fmaf(decay, s.y, k * update.y);
    s.z = fmaf(decay, s.z, k * update.z);
    s.w = fmaf(decay, s.w, k * update.w);
  }
  static __device__ float4 plus(const float4& a, const float4& b) {
    return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
  }
  // Over the rows that the lanes of this warp have.
  template <int kCount>
  static __device__ float4 of_warp(const float4 (&sums)[kCount]) {
    float4 sum = sums[0];
    if constexpr (kCount > 1) sum = plus(sum, sums[1]);
    if constexpr (kCount > 2) sum = plus(sum, plus(sums[2], sums[3]));
    static_assert(kCount <= 4);
#pragma unroll
    for (int mask = kLanesOfRow; mask < device::kWarpSize; mask *= 2) {
      sum = plus(sum,
                 {device::exchange(sum.x, mask),
                  device::exchange(sum.y, mask),
                  device::exchange(sum.z, mask),
                  device::exchange(sum.w, mask)});
    }
    return sum;
  }

  // Four rows after one another, then pairs of pairs of such sums, then the warps: the same order
  // for any number of columns.
  __device__ void add_products(int place, RecurrentShared<kColumns>& shared) {
    float4 known[kRows / 4] = {}, result[kRows / 4] = {};
#pragma unroll
    for (int i = 0; i < kRows; i += 4) {
      const float4 k = *reinterpret_cast<const float4*>(shared.k[place] + row_ + i);
      const float4 q = *reinterpret_cast<const float4*>(shared.q[place] + row_ + i);
      add(known[i / 4], k.x, value_[i]);
      add(result[i / 4], q.x, value_[i]);
      add(known[i / 4], k.y, value_[i + 1]);
      add(result[i / 4], q.y, value_[i + 1]);
      add(known[i / 4], k.z, value_[i + 2]);
      add(result[i / 4], q.z, value_[i + 2]);
      add(known[i / 4], k.w, value_[i + 3]);
      add(result[i / 4], q.w, value_[i + 3]);
    }
    const float4 all_known = of_warp(known), all_result = of_warp(result);
    const int warp = threadIdx.x / device::kWarpSize;
    if (threadIdx.x % device::kWarpSize < kLanesOfRow) {
      *reinterpret_cast<float4*>(shared.parts[0][warp] + column_) = all_known;
      *reinterpret_cast<float4*>(shared.parts[1][warp] + column_) = all_result;
    }
  }

  const int column_, row_;
  float4 value_[kRows];
};

}  // namespace atom::ops::delta_device
