#include "ops/route_tokens/route_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "ops/moe_route/moe_route_variants.h"
#include "ops/route_tokens/route_tokens_variants.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

struct Case {
  int64_t num_tokens, num_experts, hidden_size;
  bool has_bias, has_selection_bias;
  MoeRouting routing;
};

constexpr RouterScores kSoftmax = RouterScores::kSoftmax;
constexpr RouterScores kSigmoid = RouterScores::kSigmoid;

// Of released models, of fewer rows than a tile and of more than all warps have, and of columns
// that the parts do not divide.
const Case kCases[] = {
    {1, 128, 2048, false, false, {kSoftmax, 8, 1, 1, GroupScore::kLargest, true}},
    {8, 128, 2048, false, false, {kSoftmax, 8, 1, 1, GroupScore::kLargest, true}},
    {3, 32, 2880, true, false, {RouterScores::kSoftmaxOfChosen, 4}},
    {5, 256, 7168, false, true, {kSigmoid, 8, 8, 4, GroupScore::kTwoLargest, true, 2.5f, 1}},
    {7,
     512,
     2048,
     false,
     false,
     {.scores = kSoftmax, .top_k = 10, .normalizes = true, .num_shared = 1, .gates_shared = true}},
    {2, 5, 32, true, true, {kSigmoid, 5}},
    {8, 1024, 96, false, false, {kSoftmax, 3}},
    {9, 64, 160, true, false, {kSoftmax, 2}},
};

struct Tensors {
  Tensor x, weight, bias, selection_bias, products, ids, weights;

  explicit Tensors(const Case& c) {
    const int64_t num_logits = c.num_experts + c.routing.num_gates();
    const int64_t num_rows = num_logits + 3, width = c.routing.top_k + c.routing.num_shared;
    // Rows of x are apart.
    x = random_tensor({c.num_tokens, c.hidden_size + 8}, DType::kBFloat16, 1)
            .narrow(1, 0, c.hidden_size);
    weight = random_tensor({num_rows, c.hidden_size}, DType::kBFloat16, 2, 0.1f);
    if (c.has_bias) bias = random_tensor({num_rows}, DType::kFloat32, 3);
    if (c.has_selection_bias) selection_bias = random_tensor({c.num_experts}, DType::kFloat32, 4);
    products = Tensor::zeros({c.num_tokens, num_rows}, DType::kFloat32);
    ids = Tensor::zeros({c.num_tokens, width}, DType::kInt32);
    weights = Tensor::zeros({c.num_tokens, width}, DType::kFloat32);
  }
};

bool run(const RouteTokensVariant& variant, const Case& c, const Tensors& tensors) {
  ThreadPool pool(1);
  const std::vector<Tensor> all = {tensors.x,
                                   tensors.weight,
                                   tensors.bias,
                                   tensors.selection_bias,
                                   tensors.products,
                                   tensors.ids,
                                   tensors.weights};
  std::vector<Tensor> defined;
  std::copy_if(all.begin(), all.end(), std::back_inserter(defined), [](const Tensor& tensor) {
    return tensor.defined();
  });
  const bool on_gpu = variant.device != DeviceType::kCpu;
  if (on_gpu && test_gpu() == nullptr) return false;
  Placed at(on_gpu, pool, defined);
  const auto place = [&](const Tensor& tensor) { return tensor.defined() ? at(tensor) : tensor; };
  LinearWeight weight;
  weight.data = at(tensors.weight);
  weight.out_features = tensors.weight.size(0);
  weight.in_features = c.hidden_size;
  const Tensor x = at(tensors.x), bias = place(tensors.bias);
  const Tensor selection_bias = place(tensors.selection_bias), products = at(tensors.products);
  const Tensor ids = at(tensors.ids), weights = at(tensors.weights);
  const RouteTokensCall call{x,
                             weight,
                             bias,
                             selection_bias,
                             c.routing,
                             c.num_experts + c.routing.num_gates(),
                             products,
                             ids,
                             weights};
  if (!runs(variant, at.stream().device().type, call)) return false;
  Workspace measure;
  variant.launch(Stream::dry_run(at.stream().device()), call, measure);
  Workspace scratch(at.stream(), measure.peak_size());
  variant.launch(at.stream(), call, scratch);
  at.finish();
  return true;
}

// Logits within what float32 sums lose, and the choice that moe_route makes of them.
void check(const Case& c, const Tensors& tensors, const std::string& what) {
  const int64_t num_logits = c.num_experts + c.routing.num_gates();
  const std::vector<double> x = values_of(tensors.x), weight = values_of(tensors.weight);
  for (int64_t t = 0; t < c.num_tokens; ++t) {
    for (int64_t e = 0; e < num_logits; ++e) {
      double sum = c.has_bias ? tensors.bias.data<float>()[e] : 0, magnitude = std::abs(sum);
      for (int64_t k = 0; k < c.hidden_size; ++k) {
        const double product = x[t * c.hidden_size + k] * weight[e * c.hidden_size + k];
        sum += product;
        magnitude += std::abs(product);
      }
      const float got = tensors.products.data<float>()[t * tensors.products.stride(0) + e];
      ASSERT_NEAR(got, sum, 3e-6 * magnitude) << what << ", token " << t << ", logit " << e;
    }
  }
  ThreadPool pool(1);
  const Tensor ids = Tensor::zeros(tensors.ids.shape(), DType::kInt32);
  const Tensor weights = Tensor::zeros(tensors.weights.shape(), DType::kFloat32);
  ASSERT_TRUE(moe_route_by("reference",
                           Stream(&pool),
                           tensors.products.narrow(1, 0, num_logits),
                           tensors.selection_bias,
                           c.routing,
                           ids,
                           weights));
  for (int64_t i = 0; i < ids.num_elements(); ++i) {
    ASSERT_EQ(tensors.ids.data<int32_t>()[i], ids.data<int32_t>()[i]) << what << ", choice " << i;
    const float weight_of = weights.data<float>()[i];
    ASSERT_NEAR(tensors.weights.data<float>()[i], weight_of, 1e-6 + 3e-6 * std::abs(weight_of))
        << what << ", choice " << i;
  }
}

TEST(RouteTokens, EveryVariantMatchesDoubleArithmeticAndTheReferencesChoice) {
  std::set<std::string> seen;
  for (const RouteTokensVariant& variant : route_tokens_variants()) {
    for (const Case& c : kCases) {
      const Tensors tensors(c);
      if (!run(variant, c, tensors)) continue;
      seen.insert(variant.name);
      check(c, tensors, std::string(variant.name) + " of " + std::to_string(c.num_experts));
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_TRUE(seen.contains("composed"));
}

}  // namespace
}  // namespace atom::ops
