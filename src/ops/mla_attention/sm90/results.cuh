// Inside latent attention for Hopper: what a warpgroup has added up goes to the results, or to
// those of parts that are joined later.
#pragma once

#include "ops/mla_attention/sm90/items.cuh"

namespace atom::ops::mla_device {

class Results {
 public:
  __device__ explicit Results(const Work& work) : work_(work) {}

  // 256 columns from kFirstColumn on, of rows `row` and `row` + 8 of the item.
  template <int kFirstColumn>
  __device__ __forceinline__ void store(const Item& item,
                                        int row,
                                        const float (&out)[128],
                                        const float (&bases)[2],
                                        const float (&sums)[2]) const {
    if (item.place < 0) {
      store_whole<kFirstColumn>(item, row, out, sums);
    } else {
      store_part<kFirstColumn>(item, row, out, bases, sums);
    }
  }

 private:
  // Of 32 columns, thread c collects the 8 from 8c on.
  template <int kFirstColumn>
  __device__ __forceinline__ void store_whole(const Item& item,
                                              int first_row,
                                              const float (&out)[128],
                                              const float (&sums)[2]) const {
    const MlaAttentionArgs& params = work_.params;
    const int c = threadIdx.x & 3;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int row = first_row + j * 8;
      const bool exists = row < item.num_rows;
      const float factor = sums[j] == 0 ? 0.f : 1.f / sums[j];
      const int64_t token = item.token_of(work_, row), head = item.head_of(work_, row);
      gpu_bfloat16* target = static_cast<gpu_bfloat16*>(params.out) +
                             token * params.out_strides[0] + head * params.out_strides[1] +
                             kFirstColumn + c * 8;
#pragma unroll
      for (int n = 0; n < 32; n += 4) {
        uint32_t own[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          own[i] = attention_device::pack<gpu_bfloat16>(out[(n + i) * 4 + j * 2] * factor,
                                                        out[(n + i) * 4 + j * 2 + 1] * factor);
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

  template <int kFirstColumn>
  __device__ __forceinline__ void store_part(const Item& item,
                                             int first_row,
                                             const float (&out)[128],
                                             const float (&bases)[2],
                                             const float (&sums)[2]) const {
    const int c = threadIdx.x & 3;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int64_t row = int64_t{item.place} * kRows + first_row + j * 8;
      if (first_row + j * 8 >= item.num_rows) continue;
      if (kFirstColumn == 0 && c == 0) work_.partial_softmax[row] = {bases[j], sums[j]};
      float* target = work_.partial_out + row * kRank + kFirstColumn + c * 2;
#pragma unroll
      for (int n = 0; n < 32; ++n) {
        *reinterpret_cast<float2*>(target + n * 8) = {out[n * 4 + j * 2], out[n * 4 + j * 2 + 1]};
      }
    }
  }

  const Work& work_;
};

}  // namespace atom::ops::mla_device
