#include "sampling/filters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace atom {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<int32_t> kept_by(const Cut& cut, const std::vector<float>& logits) {
  std::vector<int32_t> kept;
  for (int32_t id = 0; id < static_cast<int32_t>(logits.size()); ++id) {
    const float x = logits[id];
    if (x == -kInfinity) continue;
    if (x > cut.logit || (x == cut.logit && id <= cut.token_id)) kept.push_back(id);
  }
  return kept;
}

std::vector<int32_t> kept(const std::vector<float>& logits, const SamplingParams& params) {
  RowScratch scratch;
  const LogitsRow row = scan_row(logits.data(), static_cast<int64_t>(logits.size()), scratch);
  return kept_by(choose_cut(row, params, scratch), logits);
}

// The definitions by a full sort in double.
std::vector<int32_t> plain_kept(const std::vector<float>& logits, const SamplingParams& params) {
  std::vector<int32_t> order;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] != -kInfinity) order.push_back(static_cast<int32_t>(id));
  }
  std::stable_sort(
      order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  const auto weight = [&](int32_t id) {
    return std::exp((double{logits[id]} - logits[order[0]]) / params.temperature);
  };
  std::erase_if(order, [&](int32_t id) { return weight(id) < params.min_p; });
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < order.size()) {
    order.resize(static_cast<size_t>(params.top_k));
  }
  if (params.top_p < 1) {
    double total = 0;
    for (int32_t id : order) total += weight(id);
    double sum = 0;
    size_t count = 0;
    while (count < order.size() && sum < params.top_p * total) sum += weight(order[count++]);
    order.resize(std::max<size_t>(count, 1));
  }
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<float> random_row(size_t size, float deviation, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> row(size);
  for (float& x : row) x = normal(engine);
  return row;
}

TEST(Filters, MatchAPlainSort) {
  for (size_t size : {1, 2, 63, 64, 65, 500, 3001, 20000}) {
    for (float deviation : {0.2f, 1.0f, 5.0f}) {
      const std::vector<float> row = random_row(size, deviation, static_cast<uint32_t>(size));
      for (float temperature : {0.3f, 1.0f, 5.0f}) {
        for (int32_t top_k : {0, -1, 1, 2, 50, 400, 1000000}) {
          for (float top_p : {1.0f, 0.999f, 0.9f, 0.31f, 1e-6f}) {
            for (float min_p : {0.0f, 0.001f, 0.2f, 1.0f}) {
              SamplingParams params;
              params.temperature = temperature;
              params.top_k = top_k;
              params.top_p = top_p;
              params.min_p = min_p;
              ASSERT_EQ(kept(row, params), plain_kept(row, params))
                  << size << " deviation " << deviation << " temperature " << temperature
                  << " top_k " << top_k << " top_p " << top_p << " min_p " << min_p;
            }
          }
        }
      }
    }
  }
}

TEST(Filters, TiesKeepTheLowestIds) {
  std::vector<float> row(200, 1.0f);
  row[5] = -kInfinity;
  row[150] = 2.0f;
  SamplingParams params;
  params.top_k = 4;
  EXPECT_EQ(kept(row, params), (std::vector<int32_t>{0, 1, 2, 150}));

  const std::vector<float> flat(1000, -3.0f);
  params = {};
  params.top_p = 0.25f;
  std::vector<int32_t> quarter(250);
  std::iota(quarter.begin(), quarter.end(), 0);
  EXPECT_EQ(kept(flat, params), quarter);

  const std::vector<float> zeros = {-0.0f, 0.0f, -0.0f, -1.0f};
  params = {};
  params.top_k = 2;
  EXPECT_EQ(kept(zeros, params), (std::vector<int32_t>{0, 1}));
}

TEST(Filters, ExtremeLogits) {
  std::vector<float> row(100, -1e30f);
  row[3] = -kInfinity;
  row[40] = 1e30f;
  row[41] = 1e30f;
  SamplingParams params;
  params.top_p = 0.5f;
  EXPECT_EQ(kept(row, params), (std::vector<int32_t>{40}));
  params.top_p = 0.999f;
  EXPECT_EQ(kept(row, params), (std::vector<int32_t>{40, 41}));
  params = {};
  params.min_p = 1e-30f;
  EXPECT_EQ(kept(row, params), (std::vector<int32_t>{40, 41}));
  params = {};
  params.top_k = 99;
  EXPECT_EQ(kept(row, params).size(), 99u);
  params.top_p = 0.3f;
  params.temperature = 1e-5f;
  EXPECT_EQ(kept(row, params), (std::vector<int32_t>{40}));
}

TEST(Filters, RowFaults) {
  RowScratch scratch;
  std::vector<float> row(70, -kInfinity);
  EXPECT_EQ(scan_row(row.data(), 70, scratch).fault, RowFault::kNoCandidate);
  row[69] = kInfinity;
  EXPECT_EQ(scan_row(row.data(), 70, scratch).fault, RowFault::kNotANumber);
  row[69] = std::nanf("");
  EXPECT_EQ(scan_row(row.data(), 70, scratch).fault, RowFault::kNotANumber);
  EXPECT_EQ(scan_row(row.data(), 69, scratch).fault, RowFault::kNoCandidate);
  row[0] = std::numeric_limits<float>::lowest();
  EXPECT_EQ(scan_row(row.data(), 69, scratch).fault, RowFault::kNone);
}

}  // namespace
}  // namespace atom
