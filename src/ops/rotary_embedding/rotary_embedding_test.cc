#include "ops/rotary_embedding/rotary_embedding.h"

#include <gtest/gtest.h>

#include "ops/rotary_embedding/rotary_embedding_variants.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

constexpr int64_t kMaxPosition = 97;

Tensor cos_sin_table(int64_t rotary_dim) {
  Tensor table = Tensor::zeros({kMaxPosition, rotary_dim}, DType::kFloat32);
  const int64_t half = rotary_dim / 2;
  for (int64_t p = 0; p < kMaxPosition; ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(p) * std::pow(10000.0, -2.0 * i / static_cast<double>(rotary_dim));
      table.data<float>()[p * rotary_dim + i] = static_cast<float>(std::cos(angle));
      table.data<float>()[p * rotary_dim + half + i] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

// As a product of complex numbers.
std::vector<double> expected_rotation(const Tensor& x,
                                      const Tensor& positions,
                                      const Tensor& table,
                                      RotaryStyle style) {
  std::vector<double> values = values_of(x);
  const int64_t num_heads = x.size(1), head_dim = x.size(2);
  const int64_t rotary_dim = table.size(1), half = rotary_dim / 2;
  for (int64_t t = 0; t < x.size(0); ++t) {
    const float* row = table.data<float>() + positions.data<int32_t>()[t] * rotary_dim;
    for (int64_t h = 0; h < num_heads; ++h) {
      double* head = values.data() + (t * num_heads + h) * head_dim;
      for (int64_t i = 0; i < half; ++i) {
        const bool neox = style == RotaryStyle::kNeoX;
        double& re = head[neox ? i : 2 * i];
        double& im = head[neox ? i + half : 2 * i + 1];
        const double a = re, b = im, c = row[i], s = row[half + i];
        re = a * c - b * s;
        im = a * s + b * c;
      }
    }
  }
  return values;
}

struct Case {
  int64_t num_tokens, num_heads, num_kv_heads, head_dim, rotary_dim;
};

const Case kCases[] = {{1, 1, 1, 64, 64},
                       {70, 16, 8, 128, 128},
                       {5, 4, 2, 256, 64},
                       {3, 2, 1, 128, 64},
                       {3, 2, 1, 24, 16},
                       {4, 3, 1, 80, 20},
                       {2, 2, 2, 10, 10}};

bool run(const char* variant,
         ThreadPool& pool,
         const Tensor& positions,
         const Tensor& table,
         const Tensor& q,
         const Tensor& k,
         RotaryStyle style) {
  return run_variant(variant, pool, {positions, table, q, k}, [&](const Placed& at) {
    return rotary_embedding_by(variant, at.stream(), at(positions), at(table), at(q), at(k), style);
  });
}

TEST(RotaryEmbedding, EveryVariantMatchesDoubleArithmetic) {
  ThreadPool pool(2);
  for (const char* variant : kAllVariants) {
    for (const DType dtype : kFloatDTypes) {
      for (const RotaryStyle style : {RotaryStyle::kNeoX, RotaryStyle::kInterleaved}) {
        for (const Case& c : kCases) {
          // Queries, keys and values packed in one row.
          const int64_t heads = c.num_heads + 2 * c.num_kv_heads;
          const Tensor qkv = random_tensor({c.num_tokens, heads, c.head_dim}, dtype, 1, 4.0f);
          const Tensor q = qkv.narrow(1, 0, c.num_heads);
          const Tensor k = qkv.narrow(1, c.num_heads, c.num_kv_heads);
          const Tensor v = qkv.narrow(1, c.num_heads + c.num_kv_heads, c.num_kv_heads);
          const Tensor table = cos_sin_table(c.rotary_dim);
          const Tensor positions = Tensor::zeros({c.num_tokens}, DType::kInt32);
          for (int64_t t = 0; t < c.num_tokens; ++t) {
            positions.data<int32_t>()[t] = static_cast<int32_t>((t * 13 + 96) % kMaxPosition);
          }
          const auto expected_q = expected_rotation(q, positions, table, style);
          const auto expected_k = expected_rotation(k, positions, table, style);
          const auto expected_v = values_of(v);
          if (!run(variant, pool, positions, table, q, k, style)) continue;
          const std::string what = std::string(variant) + " " + q.to_string();
          const double relative = dtype == DType::kFloat32 ? 1e-6 : 1.01 * half_ulp(dtype);
          expect_close(q, expected_q, relative, 2e-6, what);
          expect_close(k, expected_k, relative, 2e-6, what);
          EXPECT_EQ(values_of(v), expected_v);
        }
      }
    }
  }
}

TEST(RotaryEmbedding, PublicCallPicksAVariantAndDryRunDoesNothing) {
  ThreadPool pool(1);
  const Tensor table = cos_sin_table(64);
  const Tensor positions = Tensor::zeros({2}, DType::kInt32);
  positions.data<int32_t>()[1] = 5;
  const Tensor q = random_tensor({2, 4, 64}, DType::kBFloat16, 1);
  const Tensor k = random_tensor({2, 2, 64}, DType::kBFloat16, 2);
  const auto before = values_of(q);
  rotary_embedding(Stream::dry_run(), positions, table, q, k, RotaryStyle::kNeoX);
  EXPECT_EQ(values_of(q), before);
  const auto expected = expected_rotation(q, positions, table, RotaryStyle::kNeoX);
  rotary_embedding(Stream(&pool), positions, table, q, k, RotaryStyle::kNeoX);
  expect_close(q, expected, 1.01 * half_ulp(DType::kBFloat16), 2e-6, "rotary_embedding");
}

TEST(RotaryEmbeddingDeathTest, RefusesWhatTheContractExcludes) {
  ThreadPool pool(1);
  const Tensor table = cos_sin_table(64);
  const Tensor positions = Tensor::zeros({1}, DType::kInt32);
  const Tensor q = Tensor::zeros({1, 2, 64}, DType::kFloat32);
  positions.data<int32_t>()[0] = kMaxPosition;
  EXPECT_DEATH(rotary_embedding(Stream(&pool), positions, table, q, q, RotaryStyle::kNeoX),
               "does not hold");
  const Tensor narrow = Tensor::zeros({1, 2, 32}, DType::kFloat32);
  EXPECT_DEATH(
      rotary_embedding(Stream(&pool), positions, table, narrow, narrow, RotaryStyle::kNeoX),
      "does not hold");
}

}  // namespace
}  // namespace atom::ops
