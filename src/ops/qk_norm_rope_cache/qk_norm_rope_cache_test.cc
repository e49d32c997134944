#include "ops/qk_norm_rope_cache/qk_norm_rope_cache.h"

#include <gtest/gtest.h>

#include "ops/qk_norm_rope_cache/qk_norm_rope_cache_variants.h"
#include "ops/test_rope_cache.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

constexpr float kKScale = 0.75f, kVScale = 3.0f;

struct Case {
  int64_t num_tokens, num_heads, num_kv_heads, head_dim, rotary_dim;
  bool has_norm = true;
  bool float8_cache = false;
  RotaryStyle style = RotaryStyle::kNeoX;
  bool float_weights = false;
};

const Case kCases[] = {
    {1, 1, 1, 64, 64},
    {70, 16, 8, 128, 128},
    {70, 16, 8, 128, 128, false},
    {33, 8, 2, 128, 128, true, true},
    {33, 4, 2, 64, 64, false, true},
    {5, 4, 2, 256, 64},
    {5, 4, 1, 256, 256, true, true},
    {9, 3, 1, 128, 64, true, false, RotaryStyle::kInterleaved},
    {9, 6, 2, 32, 8, false, true, RotaryStyle::kInterleaved},
    {4, 2, 1, 24, 16},
    {4, 2, 1, 72, 36, false, true},
    {3, 2, 1, 16, 16},
    {5, 16, 2, 256, 64, true, false, RotaryStyle::kNeoX, true},
    {6, 4, 1, 128, 128, true, true, RotaryStyle::kNeoX, true},
    // More tokens than a GPU has one head per thread for.
    {520, 7, 2, 128, 128},
    {530, 6, 2, 64, 64, false, true},
    {515, 5, 1, 64, 32, true, true},
    {512, 3, 1, 32, 32, true, false, RotaryStyle::kInterleaved},
    {513, 5, 1, 256, 64, true, false, RotaryStyle::kNeoX, true},
};

QkNormRopeCacheParams make_params(const Case& c, DType dtype) {
  const int64_t num_heads = c.num_heads + 2 * c.num_kv_heads;
  const Tensor qkv = random_tensor({c.num_tokens, num_heads, c.head_dim}, dtype, 1, 3.0f);
  const DType cache_dtype = c.float8_cache ? DType::kFloat8E4M3 : dtype;
  QkNormRopeCacheParams params;
  params.q = qkv.narrow(1, 0, c.num_heads);
  params.k = qkv.narrow(1, c.num_heads, c.num_kv_heads);
  params.v = qkv.narrow(1, c.num_heads + c.num_kv_heads, c.num_kv_heads);
  if (c.has_norm) {
    const DType weight_dtype = c.float_weights ? DType::kFloat32 : dtype;
    params.q_weight = random_tensor({c.head_dim}, weight_dtype, 2, 2.0f);
    params.k_weight = random_tensor({c.head_dim}, weight_dtype, 3, 2.0f);
  }
  params.eps = 1e-5f;
  place_tokens(c.num_tokens, params);
  params.cos_sin = random_tensor({kMaxPosition, c.rotary_dim}, DType::kFloat32, 4);
  params.style = c.style;
  const Shape cache = {kNumBlocks, kBlockSize, c.num_kv_heads, c.head_dim};
  params.k_cache = Tensor::zeros(cache, cache_dtype);
  params.v_cache = Tensor::zeros(cache, cache_dtype);
  if (c.float8_cache) {
    params.k_scale = kKScale;
    params.v_scale = kVScale;
  }
  return params;
}

// One head in double, with the roundings between the parts.
std::vector<double> expected_head(const QkNormRopeCacheParams& params,
                                  const Tensor& weight,
                                  const double* x,
                                  int64_t position) {
  const DType dtype = params.q.dtype();
  const int64_t size = params.q.size(2);
  std::vector<double> head(x, x + size);
  if (weight.defined()) {
    const std::vector<double> weights = values_of(weight);
    double sum = 0;
    for (const double value : head) sum += value * value;
    const double scale = 1 / std::sqrt(sum / static_cast<double>(size) + params.eps);
    for (int64_t i = 0; i < size; ++i) {
      const double y = head[i] * scale;
      const bool rounds_once = weight.dtype() == DType::kFloat32;
      head[i] = rounded(weights[i] * (rounds_once ? y : rounded(y, dtype)), dtype);
    }
  }
  rotate(params.cos_sin, params.style, dtype, position, head.data());
  return head;
}

void check_result(const QkNormRopeCacheParams& got, const QkNormRopeCacheParams& before) {
  RoundedComparison comparison(4 * half_ulp(got.q.dtype()));
  const std::vector<double> q = values_of(before.q), k = values_of(before.k),
                            v = values_of(before.v), q_out = values_of(got.q);
  const int64_t num_heads = got.q.size(1), num_kv_heads = got.k.size(1), size = got.q.size(2);
  std::vector<bool> is_written(kNumBlocks * kBlockSize, false);
  const bool float8 = got.k_cache.dtype() == DType::kFloat8E4M3;
  for (int64_t t = 0; t < got.q.size(0); ++t) {
    const int64_t position = got.positions.data<int32_t>()[t];
    for (int64_t h = 0; h < num_heads; ++h) {
      const int64_t row = (t * num_heads + h) * size;
      const auto head = expected_head(before, before.q_weight, q.data() + row, position);
      for (int64_t i = 0; i < size; ++i) comparison.add(q_out[row + i], head[i], false);
    }
    const int64_t slot = got.slot_mapping.data<int32_t>()[t];
    if (slot < 0) continue;
    is_written[slot] = true;
    for (int64_t h = 0; h < num_kv_heads; ++h) {
      const int64_t row = (t * num_kv_heads + h) * size, place = (slot * num_kv_heads + h) * size;
      const auto head = expected_head(before, before.k_weight, k.data() + row, position);
      for (int64_t i = 0; i < size; ++i) {
        comparison.add(
            value_at(got.k_cache, place + i), stored(head[i], got.k_cache, got.k_scale), float8);
        ASSERT_EQ(value_at(got.v_cache, place + i), stored(v[row + i], got.v_cache, got.v_scale));
      }
    }
  }
  for (int64_t slot = 0; slot < kNumBlocks * kBlockSize; ++slot) {
    for (int64_t i = 0; !is_written[slot] && i < num_kv_heads * size; ++i) {
      ASSERT_EQ(value_at(got.k_cache, slot * num_kv_heads * size + i), 0.0);
      ASSERT_EQ(value_at(got.v_cache, slot * num_kv_heads * size + i), 0.0);
    }
  }
  comparison.finish(got.q.dtype() != DType::kFloat32);
}

bool run(const char* variant, ThreadPool& pool, const QkNormRopeCacheParams& params) {
  const std::vector<Tensor> tensors = {params.q,
                                       params.k,
                                       params.v,
                                       params.q_weight,
                                       params.k_weight,
                                       params.positions,
                                       params.cos_sin,
                                       params.slot_mapping,
                                       params.k_cache,
                                       params.v_cache};
  return run_variant(variant, pool, tensors, [&](const Placed& at) {
    QkNormRopeCacheParams placed = params;
    for (Tensor* tensor : {&placed.q,
                           &placed.k,
                           &placed.v,
                           &placed.q_weight,
                           &placed.k_weight,
                           &placed.positions,
                           &placed.cos_sin,
                           &placed.slot_mapping,
                           &placed.k_cache,
                           &placed.v_cache}) {
      if (tensor->defined()) *tensor = at(*tensor);
    }
    return qk_norm_rope_cache_by(variant, at.stream(), placed);
  });
}

TEST(QkNormRopeCache, EveryVariantMatchesDoubleArithmetic) {
  ThreadPool pool(2);
  std::vector<const char*> variants = kAllVariants;
  if (test_gpu() != nullptr) variants.push_back("separate");
  for (const char* variant : variants) {
    for (const DType dtype : kFloatDTypes) {
      for (const Case& c : kCases) {
        SCOPED_TRACE(std::string(variant) + " " + dtype_name(dtype) + " head_dim " +
                     std::to_string(c.head_dim));
        const QkNormRopeCacheParams before = make_params(c, dtype);
        const QkNormRopeCacheParams params = make_params(c, dtype);
        if (!run(variant, pool, params)) continue;
        check_result(params, before);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(QkNormRopeCacheDeathTest, RefusesWhatTheContractExcludes) {
  ThreadPool pool(1);
  QkNormRopeCacheParams params = make_params({2, 2, 1, 16, 16}, DType::kFloat32);
  params.k_weight = Tensor();
  EXPECT_DEATH(qk_norm_rope_cache(Stream(&pool), params), "k_weight");
  params = make_params({2, 2, 1, 16, 16}, DType::kFloat32);
  params.k_scale = 2.0f;
  EXPECT_DEATH(qk_norm_rope_cache(Stream(&pool), params), "float8_cache");
  params = make_params({2, 2, 1, 16, 16}, DType::kFloat32);
  params.v_cache = Tensor::zeros({kNumBlocks, 8, 1, 16}, DType::kFloat32);
  EXPECT_DEATH(qk_norm_rope_cache(Stream(&pool), params), "\\[qk_norm_rope_cache\\] v_cache");
}

}  // namespace
}  // namespace atom::ops
