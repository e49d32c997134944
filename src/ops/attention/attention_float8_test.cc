// A cache in FP8 gives what a cache of its expanded values gives: bit for bit, unless a variant
// expands it to another type than the queries'.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ops/attention/attention.h"
#include "ops/attention/attention_test_run.h"
#include "ops/test_tensors.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

struct Model {
  int64_t num_heads, num_kv_heads, head_dim;
  int64_t sliding_window = 0;
};

// Three sequences: a decode, a prefill, a chunk behind cached tokens.
struct Step {
  int32_t num_queries[3];
  int32_t seq_lens[3];
  int32_t max_blocks;

  int32_t num_tokens() const { return num_queries[0] + num_queries[1] + num_queries[2]; }
};
constexpr Step kShortStep = {{1, 70, 30}, {150, 70, 100}, 10};
constexpr Step kLongStep = {{1, 200, 90}, {150, 200, 290}, 19};
constexpr int64_t kBlockSize = 16;

Tensor random_codes(const Shape& shape, uint64_t seed) {
  const Tensor values = random_tensor(shape, DType::kFloat32, seed, 4.0f);
  const Tensor codes = Tensor::empty(shape, DType::kFloat8E4M3);
  for (int64_t i = 0; i < codes.num_elements(); ++i) {
    codes.data<Float8E4M3>()[i] = from_float<Float8E4M3>(values.data<float>()[i]);
  }
  return codes;
}

// The last block is NaN: no table has it.
void spoil_last_block(const Tensor& codes) {
  const Tensor last = codes.narrow(0, codes.size(0) - 1, 1);
  std::memset(last.raw_data(), 0xff, last.num_bytes());
}

Tensor expanded(const Tensor& codes, DType dtype) {
  const Tensor values = Tensor::empty(codes.shape(), dtype);
  dispatch_float(dtype, [&]<typename T>(TypeTag<T>) {
    for (int64_t i = 0; i < codes.num_elements(); ++i) {
      values.data<T>()[i] = from_float<T>(to_float(codes.data<Float8E4M3>()[i]));
    }
  });
  return values;
}

AttentionParams make_step(const Model& model, DType dtype, const Step& step = kShortStep) {
  AttentionParams params;
  params.q = random_tensor({step.num_tokens(), model.num_heads, model.head_dim}, dtype, 1);
  const Shape cache = {3 * step.max_blocks + 1, kBlockSize, model.num_kv_heads, model.head_dim};
  params.k_cache = random_codes(cache, 2);
  params.v_cache = random_codes(cache, 3);
  spoil_last_block(params.k_cache);
  spoil_last_block(params.v_cache);
  params.batch.block_tables = Tensor::zeros({3, step.max_blocks}, DType::kInt32);
  params.batch.query_start = Tensor::zeros({4}, DType::kInt32);
  params.batch.seq_lens = Tensor::zeros({3}, DType::kInt32);
  for (int32_t s = 0; s < 3; ++s) {
    for (int32_t b = 0; b < step.max_blocks; ++b) {
      // Backwards through the cache.
      params.batch.block_tables.data<int32_t>()[s * step.max_blocks + b] =
          3 * step.max_blocks - 1 - (b * 3 + s);
    }
    params.batch.query_start.data<int32_t>()[s + 1] =
        params.batch.query_start.data<int32_t>()[s] + step.num_queries[s];
    params.batch.seq_lens.data<int32_t>()[s] = step.seq_lens[s];
  }
  params.sliding_window = model.sliding_window;
  params.scale = 0.125f;
  params.out = Tensor::zeros(params.q.shape(), dtype);
  return params;
}

// Of values below 16: with tensor cores bfloat16 queries and weights meet an FP8 cache in float16.
double tolerance(const std::string& variant, DType dtype) {
  const bool by_tensor_cores = variant == "mma" || variant == "sm90" || variant == "fixed";
  return by_tensor_cores ? 16 * 2 * half_ulp(dtype) : 0;
}

// Compares each variant's result with its own for the expanded cache.
void check_expansion(const Model& model, DType dtype, const Step& step) {
  ThreadPool pool(2);
  for (const char* variant : kAllVariants) {
    AttentionParams params = make_step(model, dtype, step);
    // Powers of 2 leave every bit of the arithmetic as it is.
    params.k_scale = 0.5f;
    params.v_scale = 4.0f;
    if (!run_attention(variant, pool, params)) continue;
    AttentionParams wide = params;
    wide.k_cache = expanded(params.k_cache, dtype);
    wide.v_cache = expanded(params.v_cache, dtype);
    wide.scale = params.scale * 0.5f;
    wide.k_scale = wide.v_scale = 1.0f;
    wide.out = Tensor::zeros(params.out.shape(), dtype);
    ASSERT_TRUE(run_attention(variant, pool, wide));
    const std::vector<double> got = values_of(params.out);
    const std::vector<double> expected = values_of(wide.out);
    // Subnormals of float16 have fewer bits.
    const double smallest = dtype == DType::kFloat16 ? 0x1p-24 : 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double rounding = std::abs(got[i]) < 0x1p-12 ? 2.5 * smallest : 0;
      ASSERT_NEAR(got[i], 4.0 * expected[i], rounding + tolerance(variant, dtype))
          << variant << " " << params.q.to_string() << " element " << i;
    }
  }
}

TEST(AttentionFloat8, IsWhatTheExpandedCacheGives) {
  for (const DType dtype : kFloatDTypes) {
    for (const Model& model : {Model{4, 2, 64},
                               Model{8, 1, 128},
                               Model{4, 4, 64, 20},
                               Model{32, 8, 128},
                               Model{3, 1, 72},
                               Model{2, 1, 256},
                               Model{2, 1, 20}}) {
      check_expansion(model, dtype, kShortStep);
    }
  }
}

TEST(AttentionFloat8, IsWhatTheExpandedCacheGivesForLongChunks) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const Model& model : {Model{4, 2, 64}, Model{4, 1, 128}, Model{2, 2, 128, 50}}) {
      check_expansion(model, dtype, kLongStep);
    }
  }
}

TEST(AttentionFloat8DeathTest, RefusesScalesOfOtherCaches) {
  ThreadPool pool(1);
  AttentionParams params = make_step({2, 1, 64}, DType::kFloat32);
  params.k_cache = expanded(params.k_cache, DType::kFloat32);
  params.v_cache = expanded(params.v_cache, DType::kFloat32);
  params.k_scale = 2.0f;
  EXPECT_DEATH(run_attention("reference", pool, params), "float8_cache");
  params = make_step({2, 1, 64}, DType::kFloat32);
  params.v_cache = expanded(params.v_cache, DType::kFloat32);
  EXPECT_DEATH(run_attention("reference", pool, params), "\\[attention\\] v_cache");
}

}  // namespace
}  // namespace atom::ops
