// Inside moe_route on a GPU: a token's choice by a warp. Lane l has the experts l, l + 32, ...
#pragma once

#include "ops/moe_route/choice_order.cuh"
#include "ops/moe_route/moe_route_kernels.h"

namespace atom::ops::device {

// A warp's shared memory: of experts that may be among the best, and then of those that are, in
// order.
struct RouterChoices {
  uint32_t choices[kMaxRoutedTopK];
  int32_t ids[kMaxRoutedTopK];
  float scores[kMaxRoutedTopK];
};

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

  // Afterwards `chosen` has the choice, for all lanes.
  __device__ void route(RouterChoices& chosen) {
    find_choices();
    if (args_.routing.num_groups > 1) exclude_groups();
    const int k = static_cast<int>(args_.routing.top_k);
    if (!take_best_together(k, chosen)) {
#pragma unroll 1
      for (int i = 0; i < k; ++i) take_best(chosen.ids + i, chosen.scores + i);
    }
    __syncwarp();
    store(k, chosen);
  }

 private:
  __device__ void store(int k, const RouterChoices& chosen) const {
    const int num_shared = static_cast<int>(args_.routing.num_shared);
    int32_t* ids = args_.ids + token_ * (k + num_shared);
    float* weights = args_.weights + token_ * (k + num_shared);
    const bool softens = softens_chosen();
    const float largest = softens ? largest_score(k, chosen) : 0;
    const auto weight = [&](int i) {
      return softens ? expf(chosen.scores[i] - largest) : chosen.scores[i];
    };
    float divisor = 1;
    if (softens || args_.routing.normalizes) {
      float sum = 0;
#pragma unroll 1
      for (int i = lane(); i < k; i += kWarpSize) sum += weight(i);
      divisor = reduce_lanes(sum, kWarpSize, Sum{}) + (softens ? 0 : kLeastWeightSum);
    }
#pragma unroll 1
    for (int i = lane(); i < k; i += kWarpSize) {
      ids[i] = chosen.ids[i];
      weights[i] = weight(i) / divisor * args_.routing.scale;
    }
    for (int i = lane(); i < num_shared; i += kWarpSize) {
      ids[k + i] =
          args_.routing.has_shared(token_) ? static_cast<int32_t>(args_.num_experts) + i : -1;
      weights[k + i] = shared_weight(i);
    }
  }

  __device__ bool chooses_by_logit() const {
    return args_.routing.scores != RouterScores::kSigmoid && args_.selection_bias == nullptr;
  }
  // The sum over all experts cancels out when the chosen ones' weights are normalized.
  __device__ bool softens_chosen() const {
    const RouterScores kind = args_.routing.scores;
    return kind == RouterScores::kSoftmaxOfChosen ||
           (kind == RouterScores::kSoftmax && args_.routing.normalizes && chooses_by_logit());
  }

  static __device__ float largest_score(int k, const RouterChoices& chosen) {
    uint32_t largest = kTaken;
#pragma unroll 1
    for (int i = lane(); i < k; i += kWarpSize) {
      largest = max(largest, ordered_bits(chosen.scores[i]));
    }
    return from_ordered_bits(largest_of_lanes(largest));
  }

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
    if (chooses_by_logit()) order_scores();
    if (kind == RouterScores::kSoftmax && !softens_chosen()) soften(scores_);
    if (kind == RouterScores::kSigmoid) {
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) scores_[i] = sigmoid(scores_[i]);
    }
    if (!chooses_by_logit()) order_scores();
  }

  __device__ void order_scores() {
    const float* bias = args_.selection_bias;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const float added = bias != nullptr && exists(i) ? bias[expert(i)] : 0.0f;
      choices_[i] = exists(i) ? ordered_bits(scores_[i] + added) : kTaken;
    }
  }

  __device__ void exclude_groups() {
    const MoeRouting& routing = args_.routing;
    const int group_size = static_cast<int>(args_.num_experts / routing.num_groups);
    const uint32_t choice = choice_of_group(group_size);
    const uint32_t allowed = gpu_lanes_where(rank_among_lanes(choice) < routing.num_top_groups);
    int group = lane() / group_size, place = lane() % group_size;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (!exists(i) || (allowed >> group & 1) == 0) choices_[i] = kTaken;
      advance(group_size, &group, &place);
    }
  }

  // From an expert's group, and its place in it, to those of the lane's next one.
  static __device__ void advance(int group_size, int* group, int* place) {
    for (*place += kWarpSize; *place >= group_size; *place -= group_size) ++*group;
  }

  // Lane g has group g.
  __device__ uint32_t choice_of_group(int group_size) const {
    const MoeRouting& routing = args_.routing;
    const bool sums = routing.group_score == GroupScore::kTwoLargest && group_size > 1;
    const TwoLargest two =
        group_size % kWarpSize == 0 ? two_of_whole_warps(group_size) : two_of_any(group_size);
    if (lane() >= routing.num_groups) return kTaken;
    return sums ? ordered_bits(from_ordered_bits(two.first) + from_ordered_bits(two.second))
                : two.first;
  }

  // The lanes' i-th experts are all of one group, and each of these is united by itself.
  __device__ TwoLargest two_of_whole_warps(int group_size) const {
    TwoLargest own;
    int group = 0, place = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      TwoLargest two;
      two.see(choices_[i]);
      two.unite_lanes();
      if (lane() == group) {
        own.see(two.first);
        own.see(two.second);
      }
      place += kWarpSize;
      if (place < group_size) continue;
      place = 0;
      ++group;
    }
    return own;
  }

  __device__ TwoLargest two_of_any(int group_size) const {
    TwoLargest own;
#pragma unroll 1
    for (int g = 0; g < args_.routing.num_groups; ++g) {
      TwoLargest two;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) {
        const int place = expert(i) - g * group_size;
        if (place >= 0 && place < group_size) two.see(choices_[i]);
      }
      two.unite_lanes();
      if (lane() == g) own = two;
    }
    return own;
  }

  // No expert below the k-th of the lanes' best ones is among the k best. Of those that are not
  // below, hardly ever more than there are lanes, each lane ranks one. False where they are more.
  __device__ bool take_best_together(int k, RouterChoices& chosen) const {
    if (k > kWarpSize) return false;
    uint32_t best = kTaken;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) best = max(best, choices_[i]);
    const uint32_t is_kth = gpu_lanes_where(rank_among_lanes(best) == k - 1);
    const uint32_t least = max(gpu_shuffle(best, __ffs(static_cast<int>(is_kth)) - 1), kTaken + 1);
    const int count = gather(least, chosen);
    if (count > kWarpSize) return false;
    __syncwarp();
    const bool exists = lane() < count;
    const uint32_t choice = exists ? chosen.choices[lane()] : kTaken;
    const int32_t id = exists ? chosen.ids[lane()] : 0;
    const float score = exists ? chosen.scores[lane()] : 0;
    const int rank = rank_among_lanes(choice);
    __syncwarp();
    if (rank < k) {
      chosen.ids[rank] = id;
      chosen.scores[rank] = score;
    }
    return true;
  }

  // Experts from `least` on, ascending in their ids, as many as there are lanes: how many there
  // are.
  __device__ int gather(uint32_t least, RouterChoices& chosen) const {
    const uint32_t lower_lanes = (1u << lane()) - 1;
    int count = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const bool is_candidate = choices_[i] >= least;
      const uint32_t lanes = gpu_lanes_where(is_candidate);
      // Others go where nobody looks: a branch would cost more than what it saves.
      const int among = count + __popc(lanes & lower_lanes);
      const int place = is_candidate ? min(among, kWarpSize) : kWarpSize;
      count += __popc(lanes);
      chosen.choices[place] = choices_[i];
      chosen.ids[place] = expert(i);
      chosen.scores[place] = scores_[i];
    }
    return count;
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
