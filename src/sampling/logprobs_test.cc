#include "sampling/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace atom {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Logprobs, MatchLogSoftmaxInDouble) {
  std::mt19937 engine(9);
  RowScratch scratch;
  for (int64_t size : {1, 17, 64, 1000, 30011}) {
    for (float deviation : {0.0f, 2.0f, 20.0f}) {
      std::normal_distribution<float> normal(3, deviation);
      std::vector<float> row(static_cast<size_t>(size));
      // Rounded to tenths, so that ties are common.
      for (float& x : row) x = std::round(normal(engine) * 10) / 10;
      const float max = *std::max_element(row.begin(), row.end());
      double total = 0;
      for (float x : row) total += std::exp(double{x} - max);
      std::vector<int32_t> order(row.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
      std::stable_sort(
          order.begin(), order.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
      const auto expect_entry = [&](const TokenLogprob& entry, int32_t token_id) {
        EXPECT_EQ(entry.token_id, token_id);
        EXPECT_NEAR(entry.logprob, double{row[token_id]} - max - std::log(total), 4e-6);
        EXPECT_EQ(entry.rank, 1 + std::count_if(row.begin(), row.end(), [&](float x) {
                                return x > row[token_id];
                              }));
      };
      for (int32_t k : {0, 1, 5, 64}) {
        const auto chosen = static_cast<int32_t>(engine() % static_cast<uint32_t>(size));
        const auto result = row_logprobs(row.data(), size, chosen, k, scratch);
        ASSERT_TRUE(result.ok());
        ASSERT_EQ(result->size(), 1 + std::min<size_t>(static_cast<size_t>(k), row.size()));
        expect_entry(result->front(), chosen);
        for (size_t i = 1; i < result->size(); ++i) expect_entry((*result)[i], order[i - 1]);
      }
    }
  }
}

TEST(Logprobs, MaskedTokensHaveNoProbability) {
  RowScratch scratch;
  const std::vector<float> row = {0, -kInfinity, 0, -kInfinity};
  const auto result = row_logprobs(row.data(), 4, 1, 3, scratch);
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->size(), 3u);
  EXPECT_EQ((*result)[0].logprob, -kInfinity);
  EXPECT_EQ((*result)[0].rank, 3);
  EXPECT_FLOAT_EQ((*result)[1].logprob, -std::log(2.0f));
}

TEST(Logprobs, BadRowsAreErrors) {
  RowScratch scratch;
  const std::vector<float> nan = {0, std::nanf(""), 0};
  EXPECT_EQ(row_logprobs(nan.data(), 3, 0, 1, scratch).status().code(), StatusCode::kInternal);
  const std::vector<float> nothing(3, -kInfinity);
  EXPECT_FALSE(row_logprobs(nothing.data(), 3, 0, 1, scratch).ok());
}

}  // namespace
}  // namespace atom
