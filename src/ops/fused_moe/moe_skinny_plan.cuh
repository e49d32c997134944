// Inside fused_moe for few tokens by experts in FP8 on Hopper: which experts have which tokens. A
// token has an expert once, and so an expert's tokens are a set of bits.
#pragma once

#include "ops/fused_moe/moe_device.cuh"
#include "ops/fused_moe/moe_skinny.h"

namespace atom::ops::device::moe_skinny {

constexpr int kThreads = 384;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kRowUnit = 4;

// Of the most tokens and choices of a call.
struct FewTokens {
  static constexpr int kTokens = kFewMoeSkinnyTokens, kChoices = kFewMoeSkinnyChoices;
};
struct MoreTokens {
  static constexpr int kTokens = kMaxMoeSkinnyTokens, kChoices = kMaxMoeSkinnyChoices;
};

template <typename Limits>
struct PlanMemory {
  static constexpr int kWords = Limits::kTokens / kWarpSize;
  uint32_t tokens[kWords][kMaxGpuExperts];
  uint32_t totals[kWarps];
};

// The rows and the groups before an expert's, or of all.
struct PlanSizes {
  int rows, groups;
};

template <typename Limits>
class Plan {
 public:
  // By all threads of the block, as its other functions; `columns` are a group's at most.
  __device__ Plan(const FusedMoeGpuCall& call, PlanMemory<Limits>& memory, int columns)
      : call_(call), memory_(memory), columns_(columns) {
    const int num_choices = call.num_tokens * call.top_k;
#pragma unroll
    for (int i = 0; i < kChoices; ++i) {
      const int choice = threadIdx.x + i * kThreads;
      places_[i] = choice < num_choices ? place_of(call, choice) : -1;
    }
  }

  // visit(expert, number of its tokens, sizes before it) for each expert that has tokens, by one
  // thread. Returns the sizes of all.
  template <typename Visit>
  __device__ PlanSizes for_experts(Visit&& visit) const {
    find_tokens();
    int counts[kExperts];
    uint32_t sizes[kExperts], before = 0;
#pragma unroll
    for (int i = 0; i < kExperts; ++i) {
      const int expert = kExperts * threadIdx.x + i;
      counts[i] = 0;
      if (expert < call_.num_experts) {
        counts[i] = tokens_before(expert, Limits::kTokens);
      }
      const int rows = (counts[i] + kRowUnit - 1) / kRowUnit * kRowUnit;
      sizes[i] = rows | (counts[i] + columns_ - 1) / columns_ << kGroupShift;
      before += sizes[i];
    }
    const uint32_t all = add_up(before);
#pragma unroll
    for (int i = 0; i < kExperts; ++i) {
      if (counts[i] > 0) visit(kExperts * threadIdx.x + i, counts[i], unpacked(before));
      before += sizes[i];
    }
    return unpacked(all);
  }

  // After for_experts: how many of an expert's tokens come before one.
  __device__ int tokens_before(int expert, int token) const {
    const uint32_t below = (1u << token % kWarpSize) - 1;
    int count = 0;
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      const uint32_t tokens = memory_.tokens[w][expert];
      const int word = token / kWarpSize;
      count += __popc(w < word ? tokens : w == word ? tokens & below : 0);
    }
    return count;
  }

 private:
  static constexpr int kWords = PlanMemory<Limits>::kWords;
  static constexpr int kChoices = (Limits::kChoices + kThreads - 1) / kThreads;  // of a thread
  static constexpr int kExperts = (kMaxGpuExperts + kThreads - 1) / kThreads;
  static constexpr int kGroupShift = 16;
  static_assert(Limits::kTokens % kWarpSize == 0);
  static_assert(kRowUnit * Limits::kChoices < 1 << kGroupShift);

  static __device__ PlanSizes unpacked(uint32_t sizes) {
    return {static_cast<int>(sizes & ((1u << kGroupShift) - 1)),
            static_cast<int>(sizes >> kGroupShift)};
  }

  __device__ void find_tokens() const {
    for (int e = threadIdx.x; e < call_.num_experts; e += kThreads) {
#pragma unroll
      for (auto& tokens : memory_.tokens) tokens[e] = 0;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kChoices; ++i) {
      if (places_[i] < 0) continue;
      const int token = static_cast<int>(threadIdx.x + i * kThreads) / call_.top_k;
      atomicOr(&memory_.tokens[token / kWarpSize][places_[i]], 1u << token % kWarpSize);
    }
    __syncthreads();
  }

  // `value` becomes the sum of those of the threads before; returns that of all.
  __device__ uint32_t add_up(uint32_t& value) const {
    const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
    const uint32_t own = value;
#pragma unroll
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
      const uint32_t other = __shfl_up_sync(0xffffffffu, value, distance);
      if (lane >= distance) value += other;
    }
    if (lane == kWarpSize - 1) memory_.totals[warp] = value;
    __syncthreads();
    value -= own;
    uint32_t all = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w == warp) value += all;
      all += memory_.totals[w];
    }
    return all;
  }

  const FusedMoeGpuCall& call_;
  PlanMemory<Limits>& memory_;
  const int columns_;
  int places_[kChoices];
};

}  // namespace atom::ops::device::moe_skinny
