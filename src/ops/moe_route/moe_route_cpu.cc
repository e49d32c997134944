#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/moe_route/moe_route_kernels.h"

namespace atom::ops {
namespace {

// One token at a time.
class Router {
 public:
  explicit Router(const MoeRouteArgs& args)
      : args_(args),
        routing_(args.routing),
        group_size_(args.num_experts / routing_.num_groups),
        scores_(args.num_experts),
        choices_(args.num_experts),
        group_scores_(routing_.num_groups) {}

  void route(int64_t token) {
    const float* logits = args_.logits + token * args_.row_stride;
    const int64_t num_choices = routing_.top_k + routing_.num_shared;
    int32_t* ids = args_.ids + token * num_choices;
    float* weights = args_.weights + token * num_choices;
    score(logits);
    if (routing_.num_groups > 1) exclude_groups();
    for (int64_t i = 0; i < routing_.top_k; ++i) {
      ids[i] = static_cast<int32_t>(take_largest(choices_));
      weights[i] = scores_[ids[i]];
    }
    finish(weights);
    for (int64_t i = 0; i < routing_.num_shared; ++i) {
      const int64_t id = routing_.has_shared(token) ? args_.num_experts + i : -1;
      ids[routing_.top_k + i] = static_cast<int32_t>(id);
      weights[routing_.top_k + i] =
          routing_.gates_shared ? sigmoid(logits[args_.num_experts + i]) : routing_.shared_weight;
    }
  }

 private:
  // The score of one that cannot be chosen (again).
  static constexpr float kTaken = NAN;

  static float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

  void score(const float* logits) {
    const int64_t n = args_.num_experts;
    std::copy_n(logits, n, scores_.begin());
    if (routing_.scores == RouterScores::kSoftmax) soften(scores_.data(), n);
    if (routing_.scores == RouterScores::kSigmoid) {
      for (float& score : scores_) score = sigmoid(score);
    }
    const bool by_logit =
        routing_.scores != RouterScores::kSigmoid && args_.selection_bias == nullptr;
    for (int64_t e = 0; e < n; ++e) {
      const float value = by_logit ? logits[e] : scores_[e];
      const float biased =
          args_.selection_bias == nullptr ? value : value + args_.selection_bias[e];
      choices_[e] = std::isnan(biased) ? -INFINITY : biased;
    }
  }

  // The first of the largest that are not taken, and takes it.
  static int64_t take_largest(std::vector<float>& values) {
    int64_t best = -1;
    for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
      if (!std::isnan(values[i]) && (best < 0 || values[i] > values[best])) best = i;
    }
    values[best] = kTaken;
    return best;
  }

  void exclude_groups() {
    for (int64_t g = 0; g < routing_.num_groups; ++g) {
      const float* choices = choices_.data() + g * group_size_;
      float largest = -INFINITY, second = -INFINITY;
      for (int64_t i = 0; i < group_size_; ++i) {
        second = std::max(second, std::min(largest, choices[i]));
        largest = std::max(largest, choices[i]);
      }
      const bool sums = routing_.group_score == GroupScore::kTwoLargest && group_size_ > 1;
      const float score = sums ? largest + second : largest;
      group_scores_[g] = std::isnan(score) ? -INFINITY : score;
    }
    for (int64_t i = 0; i < routing_.num_top_groups; ++i) take_largest(group_scores_);
    for (int64_t g = 0; g < routing_.num_groups; ++g) {
      if (std::isnan(group_scores_[g])) continue;
      std::fill_n(choices_.begin() + g * group_size_, group_size_, kTaken);
    }
  }

  static void soften(float* values, int64_t n) {
    const float largest = *std::max_element(values, values + n);
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += values[i] = std::exp(values[i] - largest);
    for (int64_t i = 0; i < n; ++i) values[i] /= sum;
  }

  // From the chosen experts' scores to their weights.
  void finish(float* weights) const {
    const int64_t k = routing_.top_k;
    if (routing_.scores == RouterScores::kSoftmaxOfChosen) soften(weights, k);
    if (routing_.normalizes) {
      float sum = kLeastWeightSum;
      for (int64_t i = 0; i < k; ++i) sum += weights[i];
      for (int64_t i = 0; i < k; ++i) weights[i] /= sum;
    }
    for (int64_t i = 0; i < k; ++i) weights[i] *= routing_.scale;
  }

  const MoeRouteArgs& args_;
  const MoeRouting& routing_;
  const int64_t group_size_;
  std::vector<float> scores_;        // of all experts; logits where the chosen are softened
  std::vector<float> choices_;       // what experts are chosen by
  std::vector<float> group_scores_;  // and groups
};

}  // namespace

void moe_route_reference(const MoeRouteArgs& args, int64_t begin, int64_t end) {
  Router router(args);
  for (int64_t token = begin; token < end; ++token) router.route(token);
}

}  // namespace atom::ops
