#include "ops/moe_route/moe_route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "ops/moe_route/moe_route_variants.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

struct Routed {
  std::vector<int32_t> ids;
  std::vector<double> weights;
};

// Sorts in double. `row` has the logits of one token.
Routed expected_route(std::vector<double> row,
                      const std::vector<double>& bias,
                      const MoeRouting& routing) {
  const std::vector<double> gates(row.end() - routing.num_gates(), row.end());
  row.resize(row.size() - gates.size());
  const auto num_experts = static_cast<int32_t>(row.size());
  std::vector<double> scores = row;
  if (routing.scores == RouterScores::kSigmoid) {
    for (double& score : scores) score = 1 / (1 + std::exp(-score));
  }
  const auto soften = [](std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += std::exp(value);
    for (double& value : values) value = std::exp(value) / sum;
  };
  if (routing.scores == RouterScores::kSoftmax) soften(scores);
  std::vector<double> choice(num_experts);
  for (int32_t e = 0; e < num_experts; ++e) choice[e] = scores[e] + (bias.empty() ? 0 : bias[e]);

  const int64_t group_size = num_experts / routing.num_groups;
  std::vector<std::pair<double, int64_t>> groups;  // descending in score, ascending in index
  for (int64_t g = 0; g < routing.num_groups; ++g) {
    std::vector<double> members(choice.begin() + g * group_size,
                                choice.begin() + (g + 1) * group_size);
    std::sort(members.rbegin(), members.rend());
    const bool sums = routing.group_score == GroupScore::kTwoLargest && group_size > 1;
    groups.emplace_back(-(sums ? members[0] + members[1] : members[0]), g);
  }
  std::sort(groups.begin(), groups.end());
  std::vector<std::pair<double, int32_t>> candidates;
  for (int64_t i = 0; i < routing.num_top_groups; ++i) {
    const int64_t first = groups[i].second * group_size;
    for (int64_t e = first; e < first + group_size; ++e) {
      candidates.emplace_back(-choice[e], static_cast<int32_t>(e));
    }
  }
  std::sort(candidates.begin(), candidates.end());

  Routed routed;
  for (int64_t i = 0; i < routing.top_k; ++i) {
    routed.ids.push_back(candidates[i].second);
    routed.weights.push_back(scores[candidates[i].second]);
  }
  if (routing.scores == RouterScores::kSoftmaxOfChosen) soften(routed.weights);
  const double sum = std::accumulate(routed.weights.begin(), routed.weights.end(), 0.0);
  for (double& weight : routed.weights) {
    weight = weight / (routing.normalizes ? sum : 1) * routing.scale;
  }
  for (int64_t i = 0; i < routing.num_shared; ++i) {
    routed.ids.push_back(num_experts + static_cast<int32_t>(i));
    routed.weights.push_back(routing.gates_shared ? 1 / (1 + std::exp(-gates[i]))
                                                  : routing.shared_weight);
  }
  return routed;
}

struct Call {
  Tensor logits, bias, ids, weights;
};

Call make_call(const Tensor& logits, const Tensor& bias, const MoeRouting& routing) {
  const int64_t width = routing.top_k + routing.num_shared;
  return {logits,
          bias,
          Tensor::zeros({logits.size(0), width}, DType::kInt32),
          Tensor::zeros({logits.size(0), width}, DType::kFloat32)};
}

bool run(const char* variant, const Call& call, const MoeRouting& routing) {
  ThreadPool pool(2);
  return run_variant(
      variant, pool, {call.logits, call.bias, call.ids, call.weights}, [&](const Placed& at) {
        return moe_route_by(variant,
                            at.stream(),
                            at(call.logits),
                            at(call.bias),
                            routing,
                            at(call.ids),
                            at(call.weights));
      });
}

struct Case {
  int64_t num_experts;
  bool has_bias;
  MoeRouting routing;
};

constexpr RouterScores kSoftmax = RouterScores::kSoftmax;
constexpr RouterScores kOfChosen = RouterScores::kSoftmaxOfChosen;
constexpr RouterScores kSigmoid = RouterScores::kSigmoid;

const Case kCases[] = {
    {8, false, {kSoftmax, 2, 1, 1, GroupScore::kLargest, true}},
    {128, false, {kSoftmax, 8, 1, 1, GroupScore::kLargest, true}},
    {60, false, {kSoftmax, 4, 1, 1, GroupScore::kLargest, false, 1.0f, 1}},
    {64, true, {kSoftmax, 6, 1, 1, GroupScore::kLargest, false}},
    {32, false, {kOfChosen, 4}},
    {128, false, {kOfChosen, 4}},
    {160, false, {kSoftmax, 6, 8, 3, GroupScore::kLargest, false, 16.0f, 2}},
    {256, true, {kSigmoid, 8, 8, 4, GroupScore::kTwoLargest, true, 2.5f, 1}},
    {384, true, {kSigmoid, 8, 1, 1, GroupScore::kTwoLargest, true, 2.827f}},
    {160, true, {kSigmoid, 8, 1, 1, GroupScore::kLargest, true, 2.5f, 1, 0.4f}},
    {512, false, {kSoftmax, 10, 1, 1, GroupScore::kLargest, true}},
    {512,
     false,
     {.scores = kSoftmax, .top_k = 10, .normalizes = true, .num_shared = 1, .gates_shared = true}},
    {32,
     true,
     {.scores = kSigmoid, .top_k = 3, .scale = 2.0f, .num_shared = 2, .gates_shared = true}},
    {1000, true, {kSigmoid, 32, 4, 2, GroupScore::kTwoLargest, false}},
    {1024, false, {kSoftmax, 1}},
    {4, true, {kSigmoid, 2, 4, 2, GroupScore::kTwoLargest, true}},
    {1, false, {kSoftmax, 1}},
    {5, false, {kSigmoid, 5, 1, 1, GroupScore::kLargest, true}},
    {256, false, {kOfChosen, 33}},
    {100, true, {kOfChosen, 64}},
};

TEST(MoeRoute, MatchesASortInDouble) {
  for (const char* variant : kAllVariants) {
    for (const Case& c : kCases) {
      for (const int64_t num_tokens : {1, 3, 70}) {
        const int64_t num_logits = c.num_experts + c.routing.num_gates();
        const Tensor wide =
            random_tensor({num_tokens, num_logits + 3}, DType::kFloat32, c.num_experts, 4.0f);
        const Tensor logits = wide.narrow(1, 2, num_logits);
        // Biases large enough that most choices are theirs, and choices may be negative.
        const Tensor bias =
            c.has_bias ? random_tensor({c.num_experts}, DType::kFloat32, 5, 1.0f) : Tensor();
        const Call call = make_call(logits, bias, c.routing);
        if (!run(variant, call, c.routing)) continue;
        const std::vector<double> all = values_of(logits);
        const std::vector<double> biases = c.has_bias ? values_of(bias) : std::vector<double>();
        for (int64_t t = 0; t < num_tokens; ++t) {
          const std::vector<double> row(all.begin() + t * num_logits,
                                        all.begin() + (t + 1) * num_logits);
          const Routed expected = expected_route(row, biases, c.routing);
          for (size_t i = 0; i < expected.ids.size(); ++i) {
            const size_t at = t * expected.ids.size() + i;
            ASSERT_EQ(call.ids.data<int32_t>()[at], expected.ids[i])
                << variant << " of " << c.num_experts << ", token " << t << ", choice " << i;
            ASSERT_NEAR(call.weights.data<float>()[at],
                        expected.weights[i],
                        1e-6 + 3e-6 * std::abs(expected.weights[i]))
                << variant << " of " << c.num_experts << ", token " << t << ", choice " << i;
          }
        }
      }
    }
  }
}

TEST(MoeRoute, RanksTakeTurnsWithTheSharedExperts) {
  MoeRouting routing{kSoftmax, 2};
  routing.num_shared = 2;
  routing.shared_rank = 1;
  routing.shared_world = 3;
  for (const char* variant : kAllVariants) {
    const Call call = make_call(random_tensor({7, 16}, DType::kFloat32, 1), Tensor(), routing);
    if (!run(variant, call, routing)) continue;
    for (int32_t t = 0; t < 7; ++t) {
      const int32_t* ids = call.ids.data<int32_t>() + t * 4;
      EXPECT_EQ(ids[2], t % 3 == 1 ? 16 : -1) << variant << ", token " << t;
      EXPECT_EQ(ids[3], t % 3 == 1 ? 17 : -1) << variant << ", token " << t;
    }
  }
}

TEST(MoeRoute, TheLowestOfEqualExpertsAndGroupsIsFirst) {
  const MoeRouting plain{kSoftmax, 4};
  const MoeRouting grouped{kSigmoid, 3, 4, 2, GroupScore::kTwoLargest, true};
  for (const char* variant : kAllVariants) {
    const Tensor logits = Tensor::zeros({1, 16}, DType::kFloat32);
    logits.data<float>()[9] = 1.0f;
    logits.data<float>()[14] = 1.0f;
    const Call call = make_call(logits, Tensor(), plain);
    if (!run(variant, call, plain)) continue;
    const int32_t* ids = call.ids.data<int32_t>();
    EXPECT_EQ(std::vector<int32_t>(ids, ids + 4), (std::vector<int32_t>{9, 14, 0, 1})) << variant;

    const Call by_group = make_call(Tensor::zeros({1, 16}, DType::kFloat32), Tensor(), grouped);
    run(variant, by_group, grouped);
    ids = by_group.ids.data<int32_t>();
    EXPECT_EQ(std::vector<int32_t>(ids, ids + 3), (std::vector<int32_t>{0, 1, 2})) << variant;
  }
}

// From a few best experts to hundreds of equal ones.
TEST(MoeRoute, TheLowestOfManyEqualExpertsIsFirst) {
  const std::pair<int64_t, MoeRouting> routers[] = {
      {512, {kSoftmax, 10, 1, 1, GroupScore::kLargest, true}},
      {128, {kOfChosen, 8}},
      {256, {kSigmoid, 8, 8, 4, GroupScore::kTwoLargest, true}},
      {1024, {kSoftmax, 32}}};
  for (const char* variant : kAllVariants) {
    for (const auto& [num_experts, routing] : routers) {
      for (const float num_values : {1.0f, 4.0f, 64.0f}) {
        const Tensor logits = random_tensor({9, num_experts}, DType::kFloat32, 3);
        for (int64_t i = 0; i < logits.num_elements(); ++i) {
          float& logit = logits.data<float>()[i];
          logit = std::floor(logit * num_values) / num_values;
        }
        const Call call = make_call(logits, Tensor(), routing);
        if (!run(variant, call, routing)) continue;
        const std::vector<double> all = values_of(logits);
        for (int64_t t = 0; t < 9; ++t) {
          const auto row = all.begin() + t * num_experts;
          const int32_t* ids = call.ids.data<int32_t>() + t * routing.top_k;
          EXPECT_EQ(std::vector<int32_t>(ids, ids + routing.top_k),
                    expected_route({row, row + num_experts}, {}, routing).ids)
              << variant << " of " << num_experts << " with " << num_values << ", token " << t;
        }
      }
    }
  }
}

// Whatever the logits, ids are distinct experts; what is not a number shows in the weights.
TEST(MoeRoute, ChoosesExpertsAlsoWithoutNumbers) {
  const float kFaults[] = {NAN, INFINITY, -INFINITY};
  const MoeRouting routings[] = {
      {kSoftmax, 4}, {kOfChosen, 4}, {kSigmoid, 4, 4, 2, GroupScore::kTwoLargest, true}};
  for (const char* variant : kAllVariants) {
    for (const MoeRouting& routing : routings) {
      for (const float fault : kFaults) {
        for (const int num_faults : {1, 15, 16}) {
          const Tensor logits = random_tensor({2, 16}, DType::kFloat32, 1);
          std::fill_n(logits.data<float>(), num_faults, fault);
          const Call call = make_call(logits, Tensor(), routing);
          if (!run(variant, call, routing)) continue;
          for (int64_t t = 0; t < 2; ++t) {
            std::vector<int32_t> ids(call.ids.data<int32_t>() + t * 4,
                                     call.ids.data<int32_t>() + (t + 1) * 4);
            std::sort(ids.begin(), ids.end());
            EXPECT_TRUE(std::adjacent_find(ids.begin(), ids.end()) == ids.end()) << variant;
            EXPECT_GE(ids.front(), 0) << variant;
            EXPECT_LT(ids.back(), 16) << variant;
            EXPECT_FALSE(std::isnan(call.weights.data<float>()[4])) << variant;
          }
          const bool is_softmax = routing.scores == kSoftmax;
          if (is_softmax && std::isnan(fault)) {
            EXPECT_TRUE(std::isnan(call.weights.data<float>()[0])) << variant;
          }
        }
      }
    }
  }
}

TEST(MoeRoute, PublicCallRunsAndDryRunTouchesNothing) {
  ThreadPool pool(2);
  const MoeRouting routing{kSoftmax, 2, 1, 1, GroupScore::kLargest, true};
  const Call call = make_call(Tensor::zeros({20, 8}, DType::kFloat32), Tensor(), routing);
  moe_route(Stream::dry_run(), call.logits, call.bias, routing, call.ids, call.weights);
  EXPECT_EQ(call.weights.data<float>()[0], 0.0f);
  moe_route(Stream(&pool), call.logits, call.bias, routing, call.ids, call.weights);
  EXPECT_EQ(call.weights.data<float>()[39], 0.5f);
  EXPECT_EQ(call.ids.data<int32_t>()[39], 1);
}

TEST(MoeRouteDeathTest, RefusesMoreThanTheGroupsHave) {
  const MoeRouting routing{kSigmoid, 5, 4, 1};
  const Call call = make_call(Tensor::meta({1, 16}, DType::kFloat32), Tensor(), routing);
  EXPECT_DEATH(
      moe_route(Stream::dry_run(), call.logits, call.bias, routing, call.ids, call.weights),
      "does not hold");
}

}  // namespace
}  // namespace atom::ops
