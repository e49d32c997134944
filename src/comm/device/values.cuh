// Values that are reduced, in vectors of 16 bytes: added in float32 and rounded once, or in their
// own type if that is an integer.
#pragma once

#include <stdint.h>

#include <cstring>

#include "comm/device/vectors.cuh"
#include "comm/reduce_op.h"
#include "tensor/gpu_api.h"

namespace atom::device_exchange {

template <typename T>
struct SumOf {
  using Type = float;
};
template <>
struct SumOf<int32_t> {
  using Type = int32_t;
};
template <>
struct SumOf<int64_t> {
  using Type = int64_t;
};

__device__ inline float widen(float x) {
  return x;
}
__device__ inline float widen(__half x) {
  return __half2float(x);
}
__device__ inline float widen(gpu_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ inline int32_t widen(int32_t x) {
  return x;
}
__device__ inline int64_t widen(int64_t x) {
  return x;
}

template <typename T>
__device__ inline T narrow(typename SumOf<T>::Type x) {
  return x;
}
template <>
__device__ inline __half narrow<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline gpu_bfloat16 narrow<gpu_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

template <typename S>
__device__ inline S combine(ReduceOp op, S a, S b) {
  if (op == ReduceOp::kMin) return b < a ? b : a;
  if (op == ReduceOp::kMax) return a < b ? b : a;
  return a + b;
}

// As many values as 16 bytes hold.
template <typename T>
class Sums {
 public:
  static constexpr int kLength = sizeof(uint4) / sizeof(T);

  __device__ void set(const uint4& bits) {
    T values[kLength];
    memcpy(values, &bits, sizeof bits);
#pragma unroll
    for (int i = 0; i < kLength; ++i) sums_[i] = widen(values[i]);
  }
  __device__ void add(ReduceOp op, const uint4& bits) {
    T values[kLength];
    memcpy(values, &bits, sizeof bits);
    if (op == ReduceOp::kSum) {
#pragma unroll
      for (int i = 0; i < kLength; ++i) sums_[i] += widen(values[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kLength; ++i) {
        sums_[i] = combine<typename SumOf<T>::Type>(op, sums_[i], widen(values[i]));
      }
    }
  }
  __device__ uint4 rounded() const {
    T values[kLength];
#pragma unroll
    for (int i = 0; i < kLength; ++i) values[i] = narrow<T>(sums_[i]);
    uint4 bits;
    memcpy(&bits, values, sizeof bits);
    return bits;
  }

 private:
  typename SumOf<T>::Type sums_[kLength];
};

// What all ranks send of the block's vector `round`, in their order, of which `mine` is this
// rank's. kSize: the most ranks.
template <typename T, int kSize>
__device__ inline uint4 sum_of_ranks(const PeerView& view,
                                     ReduceOp op,
                                     const uint4& mine,
                                     int round,
                                     uint64_t epoch,
                                     Patience& patience) {
  const auto from = [&](int r) {
    return packets_at(view, view.rank, r, static_cast<int>(blockIdx.x), epoch);
  };
  Arrival arrivals[kSize];
#pragma unroll
  for (int r = 0; r < kSize; ++r) {
    if (r < view.size && r != view.rank) arrivals[r].look(from(r), round);
  }
  Sums<T> sums;
#pragma unroll
  for (int r = 0; r < kSize; ++r) {
    if (r >= view.size) continue;
    const uint4 bits =
        r == view.rank ? mine : arrivals[r].await(from(r), round, epoch, r, patience);
    if (r == 0) {
      sums.set(bits);
    } else {
      sums.add(op, bits);
    }
  }
  return sums.rounded();
}

}  // namespace atom::device_exchange
