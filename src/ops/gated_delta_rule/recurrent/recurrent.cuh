// Inside the recurrence on a GPU, for heads of 128 x 128: some columns of a value head's state in
// the registers of a block, and its steps from token to token.
//
// With S the state before a token, q and k not normalized yet and r their factors, one pass over
// the registers gives S^T k and S^T q, from which
//   u = beta (v - decay r_k S^T k),  out = decay r_q S^T q + r_q r_k (q.k) u,
//   S = decay S + k (r_k u)^T
#pragma once

#include <cstring>
#include <type_traits>

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

// What threads tell one another of a token's step.
template <int kColumns>
struct ColumnSums {
  float parts[2][kRecurrentWarps][kColumns];  // of S^T k and S^T q, by warp
  float update[kColumns];
};

// A token in shared memory: its query and key, the tile's columns of its value and result.
struct TokenRows {
  const float *q, *k, *v;
  float* out;
  TokenFactors* factors;
};

template <int kColumns>
struct RecurrentShared {
  float q[kTokenBatch][kDim];
  float k[kTokenBatch][kDim];
  float v[kTokenBatch][kColumns];
  float out[kTokenBatch][kColumns];
  ColumnSums<kColumns> sums;
  TokenFactors factors[kTokenBatch];

  __device__ TokenRows rows(int place) {
    return {q[place], k[place], v[place], out[place], &factors[place]};
  }
};

struct BlockBarrier {
  __device__ void operator()() const { __syncthreads(); }
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

// The gates of a token and the norms of its query and key: by one warp.
__device__ inline void find_factors(const GateInputs& gates, const TokenRows& rows) {
  const int lane = threadIdx.x % device::kWarpSize;
  const float4 q = reinterpret_cast<const float4*>(rows.q)[lane];
  const float4 k = reinterpret_cast<const float4*>(rows.k)[lane];
  const auto dot = [](const float4& x, const float4& y) {
    return fmaf(x.x, y.x, fmaf(x.y, y.y, fmaf(x.z, y.z, x.w * y.w)));
  };
  const float qq = device::reduce_lanes(dot(q, q), device::kWarpSize, device::Sum{});
  const float kk = device::reduce_lanes(dot(k, k), device::kWarpSize, device::Sum{});
  const float qk = device::reduce_lanes(dot(q, k), device::kWarpSize, device::Sum{});
  if (lane != 0) return;
  const float a = gates.a + gates.dt_bias;
  TokenFactors& factors = *rows.factors;
  factors.decay = expf(-gates.rate * (a > 20.0f ? a : log1pf(expf(a))));
  factors.beta = 1.0f / (1.0f + expf(-gates.b));
  factors.k_factor = 1.0f / sqrtf(kk + 1e-6f);
  factors.q_factor = 1.0f / (sqrtf(qq + 1e-6f) * sqrtf(static_cast<float>(kDim)));
  factors.qk = qk * factors.k_factor * factors.q_factor;
}

// Four elements of a row of a state as they are stored. They may be anywhere.
template <typename Stored>
struct StateQuad;

template <>
struct StateQuad<float> {
  using Bits = float4;
  static __device__ float4 widened(const float4& bits) { return bits; }
  static __device__ float4 rounded(const float4& value) { return value; }
};

template <>
struct StateQuad<device::BFloat16> {
  using Bits = uint2;
  static __device__ float4 widened(const uint2& bits) {
    return {__uint_as_float(bits.x << 16),
            __uint_as_float(bits.x & 0xffff0000u),
            __uint_as_float(bits.y << 16),
            __uint_as_float(bits.y & 0xffff0000u)};
  }
  static __device__ uint2 rounded(const float4& value) {
    return {device::bits_of_pair<device::BFloat16>(value.x, value.y),
            device::bits_of_pair<device::BFloat16>(value.z, value.w)};
  }
};

// Columns of a value head's state in a slot, from `column` on.
struct StateColumns {
  void* state;
  int64_t offset;  // elements
  bool is_float32;

  __device__ StateColumns(const GatedDeltaRuleArgs& args, int64_t slot, int64_t head, int column)
      : state(args.state),
        offset((slot * args.num_v_heads + head) * kDim * kDim + column),
        is_float32(args.state_element == Element::kFloat32) {}

  template <typename Stored>
  __device__ Stored* as() const {
    return static_cast<Stored*>(state) + offset;
  }
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

  // What a slot has comes to the registers as it is stored, so that nothing waits for it before
  // widen().
  __device__ void load(const StateColumns& state) {
    if (state.is_float32) return load_bits(state.as<float>());
    load_bits(state.as<device::BFloat16>());
  }
  __device__ void widen(Element stored) {
    if (stored != Element::kFloat32) widen_bits<device::BFloat16>();
  }
  // The tile goes on from what the slot has.
  __device__ void store(const StateColumns& state) {
    if (state.is_float32) return store_as(state.as<float>());
    store_as(state.as<device::BFloat16>());
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      using Quad = StateQuad<device::BFloat16>;
      value_[i] = Quad::widened(Quad::rounded(value_[i]));
    }
  }

  // The same of a state whose elements are known, from its first column in the tile on.
  template <typename Stored>
  __device__ void load_shared(const Stored* state) {
    using Quad = StateQuad<Stored>;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      value_[i] = Quad::widened(*quad(state, i));
    }
  }
  template <typename Stored>
  __device__ void store_as(Stored* state) const {
    using Quad = StateQuad<Stored>;
#pragma unroll
    for (int i = 0; i < kRows; ++i) gpu_store_once(quad(state, i), Quad::rounded(value_[i]));
  }
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) value_[i] = {0, 0, 0, 0};
  }

  // By all threads of the tile, in two parts. Behind the first `rows.out` has the result.
  template <typename Barrier = BlockBarrier>
  __device__ void find_update(const TokenRows& rows,
                              ColumnSums<kColumns>& sums,
                              const Barrier& barrier = {}) const {
    add_products(rows, sums);
    barrier();
    if (threadIdx.x < kColumns) {
      const TokenFactors factors = *rows.factors;
      const int column = threadIdx.x;
      float known = 0, result = 0;
#pragma unroll
      for (int warp = 0; warp < kRecurrentWarps; ++warp) {
        known += sums.parts[0][warp][column];
        result += sums.parts[1][warp][column];
      }
      known *= factors.decay * factors.k_factor;
      const float update = factors.beta * (rows.v[column] - known);
      sums.update[column] = update * factors.k_factor;
      rows.out[column] = fmaf(factors.qk, update, factors.decay * factors.q_factor * result);
    }
    barrier();
  }
  __device__ void add_update(const TokenRows& rows, const ColumnSums<kColumns>& sums) {
    const float decay = rows.factors->decay;
    const float4 update = *reinterpret_cast<const float4*>(sums.update + column_);
#pragma unroll
    for (int i = 0; i < kRows; i += 4) {
      const float4 k = *reinterpret_cast<const float4*>(rows.k + row_ + i);
      add_outer(value_[i], decay, k.x, update);
      add_outer(value_[i + 1], decay, k.y, update);
      add_outer(value_[i + 2], decay, k.z, update);
      add_outer(value_[i + 3], decay, k.w, update);
    }
  }

 private:
  template <typename Stored>
  __device__ auto quad(Stored* state, int i) const {
    using Bits = typename StateQuad<std::remove_const_t<Stored>>::Bits;
    using Quads = std::conditional_t<std::is_const_v<Stored>, const Bits, Bits>;
    return reinterpret_cast<Quads*>(state + (row_ + i) * kDim + column_);
  }
  // Of a quad of two bytes an element the bits are the first two registers.
  template <typename Stored>
  __device__ void load_bits(const Stored* state) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const auto bits = gpu_load_once(quad(state, i));
      memcpy(&value_[i], &bits, sizeof bits);
    }
  }
  template <typename Stored>
  __device__ void widen_bits() {
    using Quad = StateQuad<Stored>;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      typename Quad::Bits bits;
      memcpy(&bits, &value_[i], sizeof bits);
      value_[i] = Quad::widened(bits);
    }
  }

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
  __device__ void add_products(const TokenRows& rows, ColumnSums<kColumns>& sums) const {
    float4 known[kRows / 4] = {}, result[kRows / 4] = {};
#pragma unroll
    for (int i = 0; i < kRows; i += 4) {
      const float4 k = *reinterpret_cast<const float4*>(rows.k + row_ + i);
      const float4 q = *reinterpret_cast<const float4*>(rows.q + row_ + i);
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
      *reinterpret_cast<float4*>(sums.parts[0][warp] + column_) = all_known;
      *reinterpret_cast<float4*>(sums.parts[1][warp] + column_) = all_result;
    }
  }

  const int column_, row_;
  float4 value_[kRows];
};

}  // namespace atom::ops::delta_device
