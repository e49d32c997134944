#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "sampling/sampler_test_rows.h"

namespace atom {
namespace {

// Frequencies of num_draws consecutive positions of one sequence against `expected` shares. Tokens
// expected less than 5 times are pooled; a token of share 0 must not come.
void expect_distribution(const std::vector<float>& row,
                         const SamplingParams& params,
                         const std::vector<double>& expected,
                         int num_draws = 40000) {
  ThreadPool pool(1);
  const Stream stream(&pool);
  const auto size = static_cast<int64_t>(row.size());
  const Tensor logits = Tensor::empty({1, size}, DType::kFloat32);
  SamplingState state(params, {}, {}, size);
  Sampler sampler;
  std::vector<int> counts(row.size());
  for (int i = 0; i < num_draws; ++i) {
    std::copy(row.begin(), row.end(), logits.data<float>());
    SampledToken token;
    const SamplingRow request{&state};
    sampler.sample(stream, logits, {&request, 1}, {&token, 1});
    ASSERT_TRUE(token.status.ok());
    ++counts[token.token_id];
    state.append(token.token_id);
  }
  double chi_square = 0;
  double pooled_expected = 0;
  int pooled_count = 0;
  int num_cells = 0;
  const auto add_cell = [&](double mean, int count) {
    chi_square += (count - mean) * (count - mean) / mean;
    ++num_cells;
  };
  for (size_t id = 0; id < row.size(); ++id) {
    const double mean = expected[id] * num_draws;
    if (expected[id] == 0) {
      EXPECT_EQ(counts[id], 0) << "token " << id << " was filtered";
    } else if (mean < 5) {
      pooled_expected += mean;
      pooled_count += counts[id];
    } else {
      add_cell(mean, counts[id]);
    }
  }
  if (pooled_expected >= 5) add_cell(pooled_expected, pooled_count);
  const double freedom = std::max(num_cells - 1, 1);
  EXPECT_LT(chi_square, freedom + 3.5 * std::sqrt(2 * freedom)) << num_cells << " cells";
}

// Temperature, min_p, top_k, top_p by definition: sort, cut, normalize.
std::vector<double> plain_shares(const std::vector<float>& row, const SamplingParams& params) {
  std::vector<std::pair<double, size_t>> weights;
  const float max = *std::max_element(row.begin(), row.end());
  for (size_t id = 0; id < row.size(); ++id) {
    weights.push_back({std::exp((double{row[id]} - max) / params.temperature), id});
  }
  std::sort(weights.begin(), weights.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::erase_if(weights, [&](const auto& w) { return w.first < params.min_p; });
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < weights.size()) {
    weights.resize(static_cast<size_t>(params.top_k));
  }
  double total = 0;
  for (const auto& w : weights) total += w.first;
  double kept = 0;
  std::vector<double> shares(row.size());
  for (const auto& [weight, id] : weights) {
    if (kept >= params.top_p * total) break;
    shares[id] = weight;
    kept += weight;
  }
  for (double& share : shares) share /= kept;
  return shares;
}

TEST(SamplerDistribution, MatchesDefinitions) {
  struct Case {
    int64_t size;
    float deviation, temperature;
    int32_t top_k;
    float top_p, min_p;
  };
  const Case cases[] = {{200, 1, 1, 0, 1, 0},
                        {200, 2, 0.7f, 0, 1, 0},
                        {200, 2, 3, 0, 1, 0},
                        {37, 0, 1, 0, 1, 0},
                        {5000, 2, 1, 0, 1, 0},
                        {200, 1, 1, 20, 1, 0},
                        {200, 1, 1, 0, 0.8f, 0},
                        {200, 1, 1.3f, 0, 1, 0.1f},
                        {200, 1, 0.9f, 50, 0.9f, 0.02f},
                        {1000, 8, 1, 0, 1, 0}};
  uint64_t seed = 77;
  for (const Case& c : cases) {
    SamplingParams params = seeded(seed++ * 0x9e3779b97f4a7c15u);
    params.temperature = c.temperature;
    params.top_k = c.top_k;
    params.top_p = c.top_p;
    params.min_p = c.min_p;
    const auto row = random_row(c.size, c.deviation, static_cast<uint32_t>(seed));
    SCOPED_TRACE(testing::Message()
                 << "seed " << seed << " size " << c.size << " temperature " << c.temperature
                 << " top_k " << c.top_k << " top_p " << c.top_p << " min_p " << c.min_p);
    expect_distribution(row, params, plain_shares(row, params));
  }
}

TEST(SamplerDistribution, MatchesItsDefinitionWhenHot) {
  SamplingParams hot = seeded(9);
  hot.temperature = 100;
  const auto row = random_row(64, 10, 1);
  expect_distribution(row, hot, plain_shares(row, hot), 20000);
}

TEST(SamplerDistribution, AcrossSeedsAtOnePosition) {
  const std::vector<float> row = {0.0f, std::log(2.0f), std::log(5.0f)};
  int counts[3] = {};
  constexpr int kDraws = 8000;
  for (uint64_t seed = 0; seed < kDraws; ++seed) ++counts[sample_one(row, seeded(seed))];
  for (int i = 0; i < 3; ++i) {
    const double share = (i == 0 ? 1 : i == 1 ? 2 : 5) / 8.0;
    EXPECT_NEAR(counts[i], kDraws * share, 4 * std::sqrt(kDraws * share * (1 - share)));
  }
}

TEST(SamplerDistribution, ConsecutivePositionsAreIndependent) {
  const std::vector<float> row(4, 1.0f);
  SamplingState state(seeded(11), {}, {}, 4);
  std::vector<int> pairs(16);
  int32_t previous = -1;
  for (int i = 0; i < 16001; ++i) {
    const int32_t token = sample({row}, {{&state}})[0].token_id;
    if (previous >= 0) ++pairs[static_cast<size_t>(previous * 4 + token)];
    previous = token;
    state.append(token);
  }
  double chi_square = 0;
  for (int count : pairs) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi_square, 15 + 3.5 * std::sqrt(30.0));
}

}  // namespace
}  // namespace atom
