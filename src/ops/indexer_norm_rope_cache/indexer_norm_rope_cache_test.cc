#include "ops/indexer_norm_rope_cache/indexer_norm_rope_cache.h"

#include <gtest/gtest.h>

#include "ops/indexer_norm_rope_cache/indexer_norm_rope_cache_variants.h"
#include "ops/test_batches.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

constexpr float kEps = 1e-6f;
constexpr int64_t kMaxPosition = 50;

// LayerNorm with a bias, else RMSNorm; empty weight: neither.
void normalize(std::vector<double>& x,
               const std::vector<double>& weight,
               const std::vector<double>& bias) {
  if (weight.empty()) return;
  const double size = static_cast<double>(x.size());
  double mean = 0, squares = 0;
  if (!bias.empty()) {
    for (const double value : x) mean += value / size;
  }
  for (const double value : x) squares += (value - mean) * (value - mean) / size;
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = (x[i] - mean) / std::sqrt(squares + kEps) * weight[i] + (bias.empty() ? 0 : bias[i]);
  }
}

// Pair i turns by the angle whose cosine and sine the table has.
void rotate(std::vector<double>& x, const std::vector<double>& table, RotaryStyle style) {
  const size_t half = table.size() / 2;
  const std::vector<double> old = x;
  for (size_t i = 0; i < half; ++i) {
    const size_t first = style == RotaryStyle::kNeoX ? i : 2 * i;
    const size_t second = style == RotaryStyle::kNeoX ? i + half : 2 * i + 1;
    x[first] = old[first] * table[i] - old[second] * table[half + i];
    x[second] = old[second] * table[i] + old[first] * table[half + i];
  }
}

struct Case {
  int64_t num_heads, head_dim, rotary_dim;
  bool q_norm, k_bias;
  RotaryStyle style;
};

const Case kCases[] = {
    {4, 128, 64, false, true, RotaryStyle::kNeoX},
    {4, 128, 64, false, true, RotaryStyle::kInterleaved},
    {16, 128, 64, true, false, RotaryStyle::kNeoX},
    {1, 24, 24, true, true, RotaryStyle::kInterleaved},
    {2, 300, 6, false, false, RotaryStyle::kNeoX},
};

struct Expected {
  std::vector<double> q, cache;
};

Expected compute_expected(const IndexerNormRopeCacheParams& params,
                          const Case& c,
                          const std::vector<int32_t>& positions,
                          const std::vector<int32_t>& slots) {
  Expected expected{{}, values_of(params.key_cache)};
  const auto values_or_none = [](const Tensor& tensor) {
    return tensor.defined() ? values_of(tensor) : std::vector<double>();
  };
  for (int64_t token = 0; token < 4; ++token) {
    const auto table = values_of(params.cos_sin.narrow(0, positions[token], 1));
    for (int64_t head = 0; head < c.num_heads; ++head) {
      auto x = values_of(params.q.narrow(0, token, 1).narrow(1, head * c.head_dim, c.head_dim));
      normalize(x, values_or_none(params.q_weight), {});
      rotate(x, table, c.style);
      expected.q.insert(expected.q.end(), x.begin(), x.end());
    }
    auto x = values_of(params.k.narrow(0, token, 1));
    normalize(x, values_of(params.k_weight), values_or_none(params.k_bias));
    rotate(x, table, c.style);
    if (slots[token] < 0) continue;
    std::copy(x.begin(), x.end(), expected.cache.begin() + slots[token] * c.head_dim);
  }
  return expected;
}

void check_case(const char* variant, const Case& c, DType dtype) {
  ThreadPool pool(2);
  const std::vector<int32_t> positions = {3, 0, 49, 17}, slots = {7, -1, 0, 11};
  const int64_t width = c.num_heads * c.head_dim;
  const Tensor packed = random_tensor({4, width + c.head_dim + 5}, dtype, 1, 3.0f);
  IndexerNormRopeCacheParams params;
  params.q = packed.narrow(1, 0, width);
  params.k = packed.narrow(1, width, c.head_dim);
  if (c.q_norm) params.q_weight = random_tensor({c.head_dim}, DType::kFloat32, 2);
  params.k_weight = random_tensor({c.head_dim}, DType::kFloat32, 3);
  if (c.k_bias) params.k_bias = random_tensor({c.head_dim}, DType::kFloat32, 4);
  params.eps = kEps;
  params.positions = int32_tensor(positions);
  params.cos_sin = random_tensor({kMaxPosition, c.rotary_dim}, DType::kFloat32, 5);
  params.style = c.style;
  params.slot_mapping = int32_tensor(slots);
  params.key_cache = random_tensor({3, 4, c.head_dim}, dtype, 6);

  const Expected expected = compute_expected(params, c, positions, slots);
  const Tensor keys = copy_of(params.k);
  const std::vector<Tensor> tensors = {packed,
                                       params.q_weight,
                                       params.k_weight,
                                       params.k_bias,
                                       params.positions,
                                       params.cos_sin,
                                       params.slot_mapping,
                                       params.key_cache};
  const bool ran = run_variant(variant, pool, tensors, [&](const Placed& at) {
    IndexerNormRopeCacheParams placed = params;
    for (Tensor* tensor : {&placed.q,
                           &placed.q_weight,
                           &placed.k,
                           &placed.k_weight,
                           &placed.k_bias,
                           &placed.positions,
                           &placed.cos_sin,
                           &placed.slot_mapping,
                           &placed.key_cache}) {
      if (tensor->defined()) *tensor = at(*tensor);
    }
    return indexer_norm_rope_cache_by(variant, at.stream(), placed);
  });
  if (!ran) return;
  const std::string what = std::string(variant) + " " + params.q.to_string();
  const double tolerance = dtype == DType::kFloat32 ? 2e-6 : 1.01 * half_ulp(dtype);
  expect_close(params.q, expected.q, tolerance, 3e-6, what);
  expect_close(params.key_cache, expected.cache, tolerance, 3e-6, what);
  EXPECT_EQ(values_of(params.k), values_of(keys)) << what;
}

TEST(IndexerNormRopeCache, EveryVariantMatchesDoubleArithmetic) {
  for (const char* variant : kAllVariants) {
    for (const DType dtype : kFloatDTypes) {
      for (const Case& c : kCases) check_case(variant, c, dtype);
    }
  }
}

TEST(IndexerNormRopeCacheDeathTest, RefusesSlotsOutsideTheCacheAndOtherShapes) {
  ThreadPool pool(1);
  IndexerNormRopeCacheParams params;
  params.q = Tensor::zeros({1, 16}, DType::kFloat32);
  params.k = Tensor::zeros({1, 8}, DType::kFloat32);
  params.k_weight = Tensor::zeros({8}, DType::kFloat32);
  params.positions = int32_tensor({0});
  params.cos_sin = Tensor::zeros({4, 8}, DType::kFloat32);
  params.slot_mapping = int32_tensor({6});
  params.key_cache = Tensor::zeros({2, 3, 8}, DType::kFloat32);
  EXPECT_DEATH(indexer_norm_rope_cache(Stream(&pool), params), "num_slots");
  params.key_cache = Tensor::zeros({2, 3, 4}, DType::kFloat32);
  EXPECT_DEATH(indexer_norm_rope_cache(Stream(&pool), params),
               "\\[indexer_norm_rope_cache\\] key_cache");
}

}  // namespace
}  // namespace atom::ops
