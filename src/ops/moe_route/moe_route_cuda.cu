// A warp per token. Lane l has the experts l, l + 32, ...; a choice and its id travel as one number
// that is larger for a better choice.
#include "ops/device/programmatic_launch.cuh"
#include "ops/device/reductions.cuh"
#include "ops/moe_route/moe_route_kernels.h"
#include "tensor/gpu_launch.h"

namespace atom::ops {
namespace {

using device::kWarpSize;

constexpr int kWarps = 4;  // of a block, tokens
constexpr uint32_t kTaken = 0;

// Ascending in `choice`; NaN is as -infinity. Above kTaken.
__device__ uint32_t ordered_bits(float choice) {
  if (!(choice > -INFINITY)) choice = -INFINITY;
  if (choice == 0.0f) choice = 0.0f;  // -0 equals 0
  const uint32_t bits = __float_as_uint(choice);
  return bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
}

__device__ float from_ordered_bits(uint32_t ordered) {
  return __uint_as_float(ordered ^ ((ordered >> 31) != 0 ? 0x80000000u : 0xffffffffu));
}

// Of all lanes' candidates the one of the largest bits, the lowest id among equals.
__device__ int best_id(uint32_t ordered, int id) {
  const uint64_t key = uint64_t{ordered} << 32 | static_cast<uint32_t>(~id);
  const uint64_t best = device::reduce_lanes(key, kWarpSize, device::Largest{});
  return ~static_cast<int>(static_cast<uint32_t>(best));
}

struct TwoLargest {
  uint32_t first = kTaken, second = kTaken;

  __device__ void see(uint32_t value) {
    second = max(second, min(first, value));
    first = max(first, value);
  }
  __device__ void unite_lanes() {
    for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
      const uint32_t other_first = device::exchange(first, mask);
      const uint32_t other_second = device::exchange(second, mask);
      second = max(min(first, other_first), max(second, other_second));
      first = max(first, other_first);
    }
  }
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
    if (kind == RouterScores::kSoftmax) soften();
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

  __device__ void soften() {
    float largest = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) largest = fmaxf(largest, scores_[i]);
    largest = device::reduce_lanes(largest, kWarpSize, device::Largest{});
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      scores_[i] = exists(i) ? expf(scores_[i] - largest) : 0.0f;
      sum += scores_[i];
    }
    sum = device::reduce_lanes(sum, kWarpSize, device::Sum{});
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) scores_[i] /= sum;
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

template <int kPerLane>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    moe_route_kernel(const __grid_constant__ MoeRouteArgs args) {
  __shared__ float chosen[kWarps][kMaxRoutedTopK];
  device::allow_next_grid();
  device::wait_for_previous_grid();
  const int warp = threadIdx.x / kWarpSize;
  const int64_t token = int64_t{blockIdx.x} * kWarps + warp;
  if (token < args.num_tokens) TokenRouter<kPerLane>(args, token).route(chosen[warp]);
}

template <int kPerLane>
void launch(const MoeRouteArgs& args, gpuStream_t stream) {
  const auto blocks = static_cast<unsigned>((args.num_tokens + kWarps - 1) / kWarps);
  device::launch(
      moe_route_kernel<kPerLane>, dim3(blocks), dim3(kWarps * kWarpSize), 0, stream, true, args);
}

}  // namespace

void moe_route_cuda(const MoeRouteArgs& args, void* queue) {
  const auto stream = static_cast<gpuStream_t>(queue);
  if (args.num_experts <= 4 * kWarpSize) {
    launch<4>(args, stream);
  } else if (args.num_experts <= 16 * kWarpSize) {
    launch<16>(args, stream);
  } else {
    launch<32>(args, stream);
  }
  check_gpu_launch("moe_route");
}

}  // namespace atom::ops
