// Inside fused_moe for few tokens by experts in FP8 on Hopper: rows of x in codes. A token's block
// quantizes it for all blocks, to the rows of all of its choices.
#pragma once

#include "ops/fused_moe/moe_skinny_copy.cuh"
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
      const float scale = scale_of_largest(reduce_lanes(largest.value(), kGroupLanes, Largest()));
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

  static __device__ int column(int i) {
    return static_cast<int>(threadIdx.x) * kLength + i * kStep;
  }

  uint4 vectors_[kCount];
};

// What a block publishes: its tokens are every gridDim.x-th one.
class OwnTokens {
 public:
  // Asks for what memory has, by all threads.
  __device__ explicit OwnTokens(const MoeSkinnyArgs& args)
      : args_(args), call_(args.call), first_(args.call, token(0)), second_(args.call, token(1)) {
    const int choice = choice_of(threadIdx.x);
    if (choice < 0) return;
    place_ = place_of(call_, choice);
    weight_ = gpu_load_from_l2(call_.weights + choice);
  }

  // By the warps that multiply; returns when all blocks' tokens are there.
  template <typename Limits, int kColumns>
  __device__ void make(const Plan<Limits, false>& plan, const Shared<kColumns>& shared) const {
    find_rows(plan, shared.first_rows(), shared.rows());
    // Copies come there next.
    fence_before_copies();
    __syncwarp();
    const bool is_first_lane = threadIdx.x % kWarpSize == 0;
    if (is_first_lane) arrive(shared.plan_read());
    synchronize_first<kNumConsumers>();
    publish(shared.rows());
    if (is_first_lane) wait_for_count(args_, kRowsReady, call_.num_tokens);
    __syncwarp();
  }

 private:
  static __device__ int token(int i) { return blockIdx.x + i * gridDim.x; }

  // The block's i-th one, or -1.
  __device__ int choice_of(int i) const {
    const int own = token(i / call_.top_k);
    return own < call_.num_tokens ? own * call_.top_k + i % call_.top_k : -1;
  }

  // The rows of the choices.
  template <typename Limits>
  __device__ void find_rows(const Plan<Limits, false>& plan,
                            const uint16_t* first_rows,
                            uint16_t* rows) const {
    for (int i = threadIdx.x; choice_of(i) >= 0; i += kNumConsumers) {
      const int choice = choice_of(i);
      const bool is_first = i < kNumConsumers;
      const int place = is_first ? place_ : place_of(call_, choice);
      rows[i] = kNoRow;
      if (place < 0) continue;
      const int row = first_rows[place] + plan.tokens_before(place, choice / call_.top_k);
      rows[i] = static_cast<uint16_t>(row);
      args_.scratch.choices[row] = choice;
      args_.scratch.weights[row] = is_first ? weight_ : gpu_load_from_l2(call_.weights + choice);
    }
  }

  __device__ void publish(const uint16_t* rows) const {
    int count = 0;
    for (; token(count) < call_.num_tokens; ++count) {
      const uint16_t* const own = rows + count * call_.top_k;
      if (count == 0) {
        first_.store(call_, args_.scratch, own);
      } else if (count == 1) {
        second_.store(call_, args_.scratch, own);
      } else {
        TokenRow(call_, token(count)).store(call_, args_.scratch, own);
      }
    }
    if (count == 0) return;
    // The copy engines read them.
    fence_global_copies();
    synchronize_first<kNumConsumers>();
    if (threadIdx.x > 0) return;
    __threadfence();
    atomicAdd(args_.scratch.counters + kRowsReady, count);
  }

  const MoeSkinnyArgs& args_;
  const FusedMoeGpuCall& call_;
  const TokenRow first_, second_;
  int place_ = -1;  // of the choice that is this thread's
  float weight_ = 0;
};

}  // namespace atom::ops::device::moe_skinny
