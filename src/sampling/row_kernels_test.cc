#include "sampling/row_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/cpu_info.h"
#include "sampling/philox.h"

namespace atom {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Build {
  const char* name;
  CpuIsa isa;
  const RowKernels& kernels;
};

class RowKernelsTest : public testing::TestWithParam<Build> {
 protected:
  void SetUp() override {
    if (GetParam().isa > cpu_isa()) GTEST_SKIP() << "this processor lacks " << GetParam().name;
  }
  const RowKernels& kernels() const { return GetParam().kernels; }
};

INSTANTIATE_TEST_SUITE_P(Builds,
                         RowKernelsTest,
                         testing::Values(Build{"generic", CpuIsa::kScalar, kRowKernelsGeneric},
                                         Build{"avx2", CpuIsa::kAvx2, kRowKernelsAvx2},
                                         Build{"avx512", CpuIsa::kAvx512, kRowKernelsAvx512}),
                         [](const auto& build) { return std::string(build.param.name); });

std::vector<float> random_row(int64_t size, float deviation, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> row(static_cast<size_t>(size));
  for (float& x : row) x = normal(engine);
  for (size_t i = 0; i < row.size(); i += 37) row[i] = i % 2 == 0 ? -kInfinity : -1e30f;
  row[row.size() / 2] = 0.5f;
  return row;
}

std::vector<float> block_maxima(const std::vector<float>& row) {
  std::vector<float> maxima;
  for (size_t begin = 0; begin < row.size(); begin += kRowBlock) {
    float most = -kInfinity;
    for (size_t i = begin; i < std::min(row.size(), begin + kRowBlock); ++i) {
      most = std::max(most, row[i]);
    }
    maxima.push_back(most);
  }
  return maxima;
}

const int64_t kSizes[] = {1, 15, 16, 17, 63, 64, 65, 1000, 1024, 1025, 4999};

TEST_P(RowKernelsTest, ScanFindsMaximaAndNan) {
  for (int64_t size : kSizes) {
    std::vector<float> row = random_row(size, 3, 1);
    std::vector<float> maxima(block_maxima(row).size());
    EXPECT_TRUE(kernels().scan(row.data(), size, maxima.data()));
    EXPECT_EQ(maxima, block_maxima(row)) << size;
    for (int64_t at : {int64_t{0}, size / 2, size - 1}) {
      std::vector<float> bad = row;
      bad[at] = std::nanf("");
      EXPECT_FALSE(kernels().scan(bad.data(), size, maxima.data())) << size << " at " << at;
    }
  }
}

TEST_P(RowKernelsTest, ExpWeights) {
  std::vector<float> x;
  for (float v = 0; v > -95; v -= 0.013f) x.push_back(v);
  x.push_back(-kInfinity);
  x.push_back(-1e30f);
  std::vector<float> weights(x.size());
  kernels().exp_weights(x.data(), static_cast<int64_t>(x.size()), 0.0f, 1.0f, weights.data());
  EXPECT_EQ(weights[0], 1.0f);
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = x[i] > -87.0f ? std::exp(double{x[i]}) : 0.0;
    EXPECT_NEAR(weights[i], expected, expected * 2e-7) << x[i];
  }
}

TEST_P(RowKernelsTest, ExpSumAndCount) {
  for (int64_t size : kSizes) {
    const std::vector<float> row = random_row(size, 3, 2);
    const std::vector<float> maxima = block_maxima(row);
    const float max = *std::max_element(row.begin(), row.end());
    for (float lowest : {std::numeric_limits<float>::lowest(), 0.5f}) {
      double expected = 0;
      int64_t num_greater = 0;
      for (float x : row) {
        if (x >= lowest) expected += std::exp((double{x} - max) / 1.7);
        if (x > lowest) ++num_greater;
      }
      const double sum = kernels().exp_sum(row.data(), size, maxima.data(), max, 1 / 1.7f, lowest);
      EXPECT_NEAR(sum, expected, expected * 1e-6) << size;
      EXPECT_EQ(kernels().count_greater(row.data(), size, maxima.data(), lowest), num_greater);
    }
  }
}

// The documented formula, in double and token by token.
int64_t plain_draw(const DrawArguments& a) {
  double best = -std::numeric_limits<double>::infinity();
  int64_t best_id = -1;
  for (int64_t id = 0; id < a.vocab_size; ++id) {
    const float x = a.logits[id];
    if (!(x > a.cut_logit || (x == a.cut_logit && id <= a.cut_token_id))) continue;
    const uint32_t word = noise_word(a.seed, a.position, static_cast<uint32_t>(id));
    const double v = std::min((word / 2 + 0.5) / 2147483648.0, 1 - 0x1p-24);
    const double score = (double{x} - a.max) * a.inverse_temperature - std::log(-std::log1p(-v));
    if (score > best) {
      best = score;
      best_id = id;
    }
  }
  return best_id;
}

TEST_P(RowKernelsTest, DrawFollowsTheFormula) {
  for (int64_t size : kSizes) {
    for (float deviation : {0.0f, 1.0f, 10.0f}) {
      const std::vector<float> row = random_row(size, deviation, 3);
      const std::vector<float> maxima = block_maxima(row);
      DrawArguments a{.logits = row.data(),
                      .block_max = maxima.data(),
                      .vocab_size = size,
                      .max = *std::max_element(row.begin(), row.end()),
                      .inverse_temperature = 0.8f,
                      .cut_logit = -kInfinity,
                      .cut_token_id = std::numeric_limits<int32_t>::max(),
                      .seed = 0xfedcba9876543210u,
                      .position = 0};
      for (a.position = 0; a.position < 40; ++a.position) {
        if (a.position == 20) {
          a.cut_logit = deviation == 0.0f ? 0.0f : row[size / 3];
          a.cut_token_id = static_cast<int32_t>(size / 3);
        }
        EXPECT_EQ(kernels().draw(a), plain_draw(a)) << size << " position " << a.position;
      }
    }
  }
}

TEST_P(RowKernelsTest, BitIdenticalToGeneric) {
  for (int64_t size : kSizes) {
    const std::vector<float> row = random_row(size, 4, 5);
    const std::vector<float> maxima = block_maxima(row);
    const float max = *std::max_element(row.begin(), row.end());
    std::vector<float> weights[2];
    double sums[2];
    const RowKernels* builds[2] = {&kRowKernelsGeneric, &kernels()};
    for (int i = 0; i < 2; ++i) {
      weights[i].resize(row.size());
      builds[i]->exp_weights(row.data(), size, max, 0.7f, weights[i].data());
      sums[i] = builds[i]->exp_sum(row.data(), size, maxima.data(), max, 0.7f, -5.0f);
    }
    EXPECT_EQ(weights[0], weights[1]);
    EXPECT_EQ(sums[0], sums[1]);
  }
}

}  // namespace
}  // namespace atom
