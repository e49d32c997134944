// Inside moe_route on a GPU: a token's choice by a warp. Lane l has the experts l, l + 32, ...
#pragma once

#include "ops/moe_route/choice_order.cuh"
#include "ops/moe_route/moe_route_kernels.h"

namespace atom::ops::device {

template <int kPerLane>
class TokenRouter {
 public:
  __device__ TokenRouter(const MoeRouteArgs& args, int64_t token) : args_(args), token_(token) {
    const float* logits = args.logits + token * args.row_stride;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      scores_[i] = exists(i) ? logits[expert(i)] : -INFINITY;
    }
  }

  // `chosen` has room for the token's weights.
  __device__ void route(float* chosen) {
    find_choices();
    if (args_.routing.num_groups > 1) exclude_groups();
    const int k = static_cast<int>(args_.routing.top_k);
    const int num_shared = static_cast<int>(args_.routing.num_shared);
    int32_t* ids = args_.ids + token_ * (k + num_shared);
    float* weights = args_.weights + token_ * (k + num_shared);
    for (int i = 0; i < k; ++i) take_best(ids + i, chosen + i);
    __syncwarp();
    float largest = -INFINITY, divisor = 1;
    const bool softens = args_.routing.scores == RouterScores::kSoftmaxOfChosen;
    if (softens) {
      for (int i = 0; i < k; ++i) largest = fmaxf(largest, chosen[i]);
      divisor = 0;
      for (int i = 0; i < k; ++i) divisor += expf(chosen[i] - largest);
    } else if (args_.routing.normalizes) {
      divisor = kLeastWeightSum;
      for (int i = 0; i < k; ++i) divisor += chosen[i];
    }
    for (int i = lane(); i < k; i += kWarpSize) {
      const float weight = softens ? expf(chosen[i] - largest) : chosen[i];
      weights[i] = weight / divisor * args_.routing.scale;
    }
    for (int i = lane(); i < num_shared; i += kWarpSize) {
      ids[k + i] =
          args_.routing.has_shared(token_) ? static_cast<int32_t>(args_.num_experts) + i : -1;
      weights[k + i] = shared_weight(i);
    }
  }

 private:
  __device__ float shared_weight(int i) const {
    if (!args_.routing.gates_shared) return args_.routing.shared_weight;
    return sigmoid(args_.logits[token_ * args_.row_stride + args_.num_experts + i]);
  }
  static __device__ float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
  }
  static __device__ int lane() {
    return threadIdx.x % kWarpSize;
  }
  static __device__ int expert(int i) {
    return i * kWarpSize + lane();
  }
  __device__ bool exists(int i) const {
    return expert(i) < args_.num_experts;
  }

  __device__ void find_choices() {
    const RouterScores kind = args_.routing.scores;
    const float* bias = args_.selection_bias;
    const bool by_logit = kind != RouterScores::kSigmoid && bias == nullptr;
    if (by_logit) {
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) choices_[i] = ordered_bits(scores_[i]);
    }
    if (kind == RouterScores::kSoftmax) soften(scores_);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (kind == RouterScores::kSigmoid) scores_[i] = sigmoid(scores_[i]);
      if (!by_logit) {
        const float added = bias != nullptr && exists(i) ? bias[expert(i)] : 0.0f;
        choices_[i] = ordered_bits(scores_[i] + added);
      }
      if (!exists(i)) choices_[i] = kTaken;
    }
  }

  // Lane g has group g.
  __device__ void exclude_groups() {
    const MoeRouting& routing = args_.routing;
    const int num_groups = static_cast<int>(routing.num_groups);
    const int group_size = static_cast<int>(args_.num_experts) / num_groups;
    const bool sums = routing.group_score == GroupScore::kTwoLargest && group_size > 1;
    uint32_t group_choice = kTaken;
    for (int g = 0; g < num_groups; ++g) {
      TwoLargest two;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        if (expert(i) / group_size == g) two.see(choices_[i]);
      }
      two.unite_lanes();
      const uint32_t score =
          sums ? ordered_bits(from_ordered_bits(two.first) + from_ordered_bits(two.second))
               : two.first;
      if (lane() == g) group_choice = score;
    }
    uint32_t allowed = 0;
    for (int i = 0; i < routing.num_top_groups; ++i) {
      const int best = best_id(group_choice, lane());
      allowed |= 1u << best;
      if (lane() == best) group_choice = kTaken;
    }
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (!exists(i) || (allowed >> expert(i) / group_size & 1) == 0) choices_[i] = kTaken;
    }
  }

  __device__ void take_best(int32_t* id, float* score) {
    uint32_t choice = kTaken;
    int candidate = 0x7fffffff;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (choices_[i] <= choice) continue;
      choice = choices_[i];
      candidate = expert(i);
    }
    const int best = best_id(choice, candidate);
    if (best != candidate) return;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (expert(i) != best) continue;
      choices_[i] = kTaken;
      *id = best;
      *score = scores_[i];
    }
  }

  const MoeRouteArgs& args_;
  const int64_t token_;
  float scores_[kPerLane];
  uint32_t choices_[kPerLane];  // in order, kTaken: cannot be chosen
};

}  // namespace atom::ops::device
