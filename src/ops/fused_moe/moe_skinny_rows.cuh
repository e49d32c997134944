// Inside fused_moe for few tokens by experts in FP8 on Hopper: rows of x in codes. A token's block
// quantizes it for all blocks, to the rows of all of its choices.
#pragma once

#include "ops/fused_moe/moe_skinny_stage.cuh"
#include "ops/quantize/quantize_device.cuh"

namespace atom::ops::device::moe_skinny {

// A token's row of x, by the warps that multiply.
class TokenRow {
 public:
  // Asks for it.
  __device__ TokenRow(const FusedMoeGpuCall& call, int token) {
    const BFloat16* const x = static_cast<const BFloat16*>(call.x) + token * call.x_stride;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      vectors_[i] = uint4{};
      if (threadIdx.x < kNumConsumers && token < call.num_tokens && column(i) < call.hidden_size) {
        vectors_[i] = gpu_load_from_l2(reinterpret_cast<const uint4*>(x + column(i)));
      }
    }
  }

  // `rows` are those of its choices, or kNoRow.
  __device__ void store(const FusedMoeGpuCall& call,
                        const MoeSkinnyScratch& scratch,
                        const uint16_t* rows) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const uint4 own[1] = {vectors_[i]};
      LargestMagnitude<BFloat16> largest;
      largest.see(own[0]);
      const float scale =
          scale_of_largest(reduce_lanes(largest.value(), kGroupLanes, Largest()));
      Pack<Float8, kLength> codes{};
      quantize_vectors<BFloat16, true>(
          own, scale, [&](int, const Pack<Float8, kLength>& pack) { codes = pack; });
      if (column(i) >= call.hidden_size) continue;
      for (int j = 0; j < call.top_k; ++j) {
        const int row = rows[j];
        if (row == kNoRow) continue;
        uint8_t* const target = scratch.x + int64_t{row} * call.hidden_size + column(i);
        *reinterpret_cast<Pack<Float8, kLength>*>(target) = codes;
        if (threadIdx.x % kGroupLanes != 0) continue;
        const int group = column(i) / kMoeSkinnyGroup;
        scratch.x_scales[int64_t{group} * scratch.num_rows + row] = scale;
      }
    }
  }

 private:
  static constexpr int kLength = kVectorSize / 2;
  static constexpr int kGroupLanes = kMoeSkinnyGroup / kLength;  // lanes with a vector of a group
  static constexpr int kStep = kNumConsumers * kLength;
  static constexpr int kCount = kMaxPanels * kPanelSize / kStep;

  static __device__ int column(int i) { return static_cast<int>(threadIdx.x) * kLength + i * kStep; }

  uint4 vectors_[kCount];
};

// Of the tokens of this block: their rows, by all threads when there are groups.
template <typename Limits>
__device__ void find_rows(const FusedMoeGpuCall& call,
                          const Plan<Limits>& plan,
                          const uint16_t* first_rows,
                          uint16_t* rows) {
  for (int i = threadIdx.x;; i += kThreads) {
    const int token = blockIdx.x + i / call.top_k * gridDim.x;
    if (token >= call.num_tokens) return;
    const int place = place_of(call, token * call.top_k + i % call.top_k);
    rows[i] = place < 0 ? kNoRow : first_rows[place] + plan.tokens_before(place, token);
  }
}

// By the warps that multiply: the rows of x of this block's tokens, of which the first is `row`.
__device__ inline void publish_rows(const FusedMoeGpuCall& call,
                                    const MoeSkinnyScratch& scratch,
                                    const TokenRow& row,
                                    const uint16_t* rows) {
  int num_tokens = 0;
  for (int token = blockIdx.x; token < call.num_tokens; token += gridDim.x, ++num_tokens) {
    const uint16_t* const own = rows + num_tokens * call.top_k;
    if (num_tokens == 0) {
      row.store(call, scratch, own);
    } else {
      TokenRow(call, token).store(call, scratch, own);
    }
    if (threadIdx.x < call.top_k && own[threadIdx.x] != kNoRow) {
      const int choice = token * call.top_k + threadIdx.x;
      scratch.choices[own[threadIdx.x]] = choice;
      scratch.weights[own[threadIdx.x]] = gpu_load_from_l2(call.weights + choice);
    }
  }
  if (num_tokens == 0) return;
  // The copy engines read them.
  asm volatile("fence.proxy.async;" ::: "memory");
  synchronize_first<kNumConsumers>();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(scratch.counters + kRowsReady, num_tokens);
  }
}

}  // namespace atom::ops::device::moe_skinny
