// Inside fused_moe for few tokens by experts in FP8 on Hopper: which experts have which tokens. A
// token has an expert once, and so an expert's tokens are a set of bits.
#pragma once

#include <type_traits>

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
  uint64_t totals[kWarps];
};

// Whether a list of so many rows as there may be, which are more than choices, has place.
template <typename Limits>
constexpr bool kHasPlaceForRows = Limits::kChoices + (kRowUnit - 1) * kMaxGpuExperts
                                  <= kMaxMoeSkinnyChoices;

// The rows, the groups and, if they are counted, the choices before an expert's, or of all.
struct PlanSizes {
  int rows, groups, choices;
};

// `kCountsChoices` costs instructions, which come from memory.
template <typename Limits, bool kCountsChoices>
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
    Packed sizes[kExperts], before = 0;
#pragma unroll
    for (int i = 0; i < kExperts; ++i) {
      const int expert = kExperts * threadIdx.x + i;
      counts[i] = 0;
      if (expert < call_.num_experts) {
        counts[i] = tokens_before(expert, Limits::kTokens);
      }
      sizes[i] = packed({.rows = (counts[i] + kRowUnit - 1) / kRowUnit * kRowUnit,
                         .groups = (counts[i] + columns_ - 1) / columns_,
                         .choices = counts[i]});
      before += sizes[i];
    }
    const Packed all = add_up(before);
#pragma unroll
    for (int i = 0; i < kExperts; ++i) {
      if (counts[i] > 0) visit(kExperts * threadIdx.x + i, counts[i], unpacked(before));
      before += sizes[i];
    }
    return unpacked(all);
  }

  // visit(choice, its expert) for those of this thread whose expert is here.
  template <typename Visit>
  __device__ void for_choices(Visit&& visit) const {
#pragma unroll
    for (int i = 0; i < kChoices; ++i) {
      if (places_[i] >= 0) visit(static_cast<int>(threadIdx.x) + i * kThreads, places_[i]);
    }
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
  static constexpr int kSizeBits = 16, kChoicesShift = kCountsChoices ? 2 * kSizeBits : 0;
  static_assert(Limits::kTokens % kWarpSize == 0);
  static_assert(kRowUnit * Limits::kChoices < 1 << kSizeBits);

  // Sums of sizes are sums of such numbers.
  using Packed = std::conditional_t<kCountsChoices, uint64_t, uint32_t>;
  static __device__ Packed packed(const PlanSizes& sizes) {
    const auto low = static_cast<uint32_t>(sizes.rows | sizes.groups << kSizeBits);
    if constexpr (!kCountsChoices) return low;
    return Packed{static_cast<uint32_t>(sizes.choices)} << kChoicesShift | low;
  }
  static __device__ PlanSizes unpacked(Packed sizes) {
    constexpr uint32_t kMask = (1u << kSizeBits) - 1;
    const auto low = static_cast<uint32_t>(sizes);
    return {static_cast<int>(low & kMask),
            static_cast<int>(low >> kSizeBits),
            static_cast<int>(sizes >> kChoicesShift)};
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
  __device__ Packed add_up(Packed& value) const {
    const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
    const Packed own = value;
#pragma unroll
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
      const Packed other = __shfl_up_sync(0xffffffffu, value, distance);
      if (lane >= distance) value += other;
    }
    Packed* const totals = reinterpret_cast<Packed*>(memory_.totals);
    if (lane == kWarpSize - 1) totals[warp] = value;
    __syncthreads();
    value -= own;
    Packed all = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w == warp) value += all;
      all += totals[w];
    }
    return all;
  }

  const FusedMoeGpuCall& call_;
  PlanMemory<Limits>& memory_;
  const int columns_;
  int places_[kChoices];
};

}  // namespace atom::ops::device::moe_skinny
