// Inside latent attention for Hopper with a thread that relays: what a warpgroup does with its sums
// when an item is done.
#pragma once

#include "ops/mla_attention/relay/softmax.cuh"

namespace atom::ops::mla_device::relay {

using attention_device::named_barrier_wait;

// `group`: the warpgroup, which has one half of the latent's columns.
class Results : public Softmax {
 protected:
  using Softmax::Softmax;

  __device__ __forceinline__ void finish(const Item& item, int group) {
    float total[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float sum = sum_[j];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      if ((threadIdx.x & 3) == 0) buffers_.sums(sums_parity_, group)[row_ + j * 8] = sum;
    }
    named_barrier_wait<2 * kWarpgroup>(kSumsBarrier);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      total[j] = buffers_.sums(sums_parity_, 0)[row_ + j * 8] +
                 buffers_.sums(sums_parity_, 1)[row_ + j * 8];
    }
    sums_parity_ ^= 1;
    if (item.place < 0) {
      store_whole(item, total, group);
    } else {
      store_part(item, total, group);
    }
  }

  // Of 32 columns, thread c collects the 8 from 8c on.
  __device__ __forceinline__ void store_whole(const Item& item,
                                              const float (&total)[2],
                                              int group) const {
    const MlaAttentionArgs& params = work_.params;
    const int c = threadIdx.x & 3;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int row = row_ + j * 8;
      const bool exists = row < item.num_rows;
      const float factor = total[j] == 0 ? 0.f : 1.f / total[j];
      const int64_t token = item.token_of(work_, row), head = item.head_of(work_, row);
      gpu_bfloat16* target = static_cast<gpu_bfloat16*>(params.out) +
                             token * params.out_strides[0] + head * params.out_strides[1] +
                             group * kHalfPanels * kPanelColumns + c * 8;
#pragma unroll
      for (int n = 0; n < 32; n += 4) {
        uint32_t own[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          own[i] = attention_device::pack<gpu_bfloat16>(out_[(n + i) * 4 + j * 2] * factor,
                                                        out_[(n + i) * 4 + j * 2 + 1] * factor);
        }
        const uint4 bits = transpose_of_four(own, c);
        if (exists) *reinterpret_cast<uint4*>(target + n * 8) = bits;
      }
    }
  }

  // Element i of thread c of four becomes element c of thread i.
  static __device__ __forceinline__ uint4 transpose_of_four(uint32_t (&m)[4], int c) {
    const bool odd = c & 1, high = c & 2;
    uint32_t received = __shfl_xor_sync(kAllLanes, odd ? m[0] : m[1], 1);
    (odd ? m[0] : m[1]) = received;
    received = __shfl_xor_sync(kAllLanes, odd ? m[2] : m[3], 1);
    (odd ? m[2] : m[3]) = received;
    received = __shfl_xor_sync(kAllLanes, high ? m[0] : m[2], 2);
    (high ? m[0] : m[2]) = received;
    received = __shfl_xor_sync(kAllLanes, high ? m[1] : m[3], 2);
    (high ? m[1] : m[3]) = received;
    return {m[0], m[1], m[2], m[3]};
  }

  __device__ __forceinline__ void store_part(const Item& item,
                                             const float (&total)[2],
                                             int group) const {
    const int c = threadIdx.x & 3;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int64_t row = int64_t{item.place} * kRows + row_ + j * 8;
      if (row_ + j * 8 >= item.num_rows) continue;
      if (group == 0 && c == 0) work_.partial_softmax[row] = {base_[j], total[j]};
      float* target = work_.partial_out + row * kRank + group * kHalfPanels * kPanelColumns + c * 2;
#pragma unroll
      for (int n = 0; n < 32; ++n) {
        *reinterpret_cast<float2*>(target + n * 8) = {out_[n * 4 + j * 2], out_[n * 4 + j * 2 + 1]};
      }
    }
  }

 private:
  int sums_parity_ = 0;
};

}  // namespace atom::ops::mla_device::relay
