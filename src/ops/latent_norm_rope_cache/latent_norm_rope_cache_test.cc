#include "ops/latent_norm_rope_cache/latent_norm_rope_cache.h"

#include <gtest/gtest.h>

#include "ops/latent_norm_rope_cache/latent_norm_rope_cache_variants.h"
#include "ops/test_rope_cache.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

struct Case {
  int64_t num_tokens, num_heads, rank, rope_dim;
  bool float8_cache = false;
  RotaryStyle style = RotaryStyle::kInterleaved;
};

const Case kCases[] = {
    {1, 128, 512, 64},
    {70, 16, 512, 64},
    {33, 8, 512, 64, true},
    {9, 6, 512, 64, false, RotaryStyle::kNeoX},
    {5, 3, 1024, 32, true, RotaryStyle::kNeoX},
    {4, 2, 24, 16},
    {3, 1, 8, 2},
    {520, 5, 128, 24},
};

LatentNormRopeCacheParams make_params(const Case& c, DType dtype) {
  const int64_t row = c.rank + c.rope_dim, nope = 24;
  LatentNormRopeCacheParams params;
  // Parts of wider rows, as projections leave them.
  params.q = random_tensor({c.num_tokens, c.num_heads, nope + c.rope_dim}, dtype, 1, 3.0f)
                 .narrow(2, nope, c.rope_dim);
  params.kv = random_tensor({c.num_tokens, 1, 16 + row}, dtype, 2, 3.0f).narrow(2, 16, row);
  params.weight = random_tensor({c.rank}, dtype, 3, 2.0f);
  params.eps = 1e-5f;
  place_tokens(c.num_tokens, params);
  params.cos_sin = random_tensor({kMaxPosition, c.rope_dim}, DType::kFloat32, 4);
  params.style = c.style;
  params.cache =
      Tensor::zeros({kNumBlocks, kBlockSize, row}, c.float8_cache ? DType::kFloat8E4M3 : dtype);
  return params;
}

// A token's row of the cache in double, with the roundings between the parts.
std::vector<double> expected_row(const LatentNormRopeCacheParams& params,
                                 const double* x,
                                 int64_t position) {
  const DType dtype = params.q.dtype();
  const int64_t rank = params.weight.size(0);
  const std::vector<double> weights = values_of(params.weight);
  std::vector<double> row(x, x + params.kv.size(2));
  double sum = 0;
  for (int64_t i = 0; i < rank; ++i) sum += row[i] * row[i];
  const double scale = 1 / std::sqrt(sum / static_cast<double>(rank) + params.eps);
  for (int64_t i = 0; i < rank; ++i) {
    row[i] = rounded(weights[i] * rounded(row[i] * scale, dtype), dtype);
  }
  rotate(params.cos_sin, params.style, dtype, position, row.data() + rank);
  return row;
}

void check_result(const LatentNormRopeCacheParams& got, const LatentNormRopeCacheParams& before) {
  RoundedComparison comparison(2.1 * half_ulp(got.q.dtype()));
  const std::vector<double> q_out = values_of(got.q), kv = values_of(before.kv);
  std::vector<double> q = values_of(before.q);
  const int64_t num_heads = got.q.size(1), size = got.q.size(2), row_size = got.kv.size(2);
  const bool float8 = got.cache.dtype() == DType::kFloat8E4M3;
  std::vector<bool> is_written(kNumBlocks * kBlockSize, false);
  for (int64_t t = 0; t < got.q.size(0); ++t) {
    const int64_t position = got.positions.data<int32_t>()[t];
    for (int64_t h = 0; h < num_heads; ++h) {
      const int64_t head = (t * num_heads + h) * size;
      rotate(before.cos_sin, before.style, got.q.dtype(), position, q.data() + head);
      for (int64_t i = head; i < head + size; ++i) comparison.add(q_out[i], q[i], false);
    }
    const int64_t slot = got.slot_mapping.data<int32_t>()[t];
    if (slot < 0) continue;
    is_written[slot] = true;
    const auto row = expected_row(before, kv.data() + t * row_size, position);
    for (int64_t i = 0; i < row_size; ++i) {
      comparison.add(value_at(got.cache, slot * row_size + i), stored(row[i], got.cache), float8);
    }
  }
  for (int64_t slot = 0; slot < kNumBlocks * kBlockSize; ++slot) {
    for (int64_t i = 0; !is_written[slot] && i < row_size; ++i) {
      ASSERT_EQ(value_at(got.cache, slot * row_size + i), 0.0);
    }
  }
  comparison.finish(got.q.dtype() != DType::kFloat32);
}

bool run(const char* variant, ThreadPool& pool, const LatentNormRopeCacheParams& params) {
  const std::vector<Tensor> tensors = {params.q,
                                       params.kv,
                                       params.weight,
                                       params.positions,
                                       params.cos_sin,
                                       params.slot_mapping,
                                       params.cache};
  return run_variant(variant, pool, tensors, [&](const Placed& at) {
    LatentNormRopeCacheParams placed = params;
    for (Tensor* tensor : {&placed.q,
                           &placed.kv,
                           &placed.weight,
                           &placed.positions,
                           &placed.cos_sin,
                           &placed.slot_mapping,
                           &placed.cache}) {
      *tensor = at(*tensor);
    }
    return latent_norm_rope_cache_by(variant, at.stream(), placed);
  });
}

TEST(LatentNormRopeCache, EveryVariantMatchesDoubleArithmetic) {
  ThreadPool pool(2);
  std::vector<const char*> variants = kAllVariants;
  if (test_gpu() != nullptr) variants.push_back("separate");
  for (const char* variant : variants) {
    int num_runs = 0;
    for (const DType dtype : kFloatDTypes) {
      for (const Case& c : kCases) {
        SCOPED_TRACE(std::string(variant) + " " + dtype_name(dtype) + " rank " +
                     std::to_string(c.rank));
        const LatentNormRopeCacheParams before = make_params(c, dtype);
        const LatentNormRopeCacheParams params = make_params(c, dtype);
        if (!run(variant, pool, params)) continue;
        ++num_runs;
        check_result(params, before);
        if (HasFatalFailure()) return;
      }
    }
    const bool is_cuda = variant == std::string("cuda") && test_gpu() != nullptr;
    EXPECT_GE(num_runs, is_cuda ? 14 : 0);
  }
}

TEST(LatentNormRopeCacheDeathTest, RefusesWhatTheContractExcludes) {
  ThreadPool pool(1);
  LatentNormRopeCacheParams params = make_params({2, 2, 16, 8}, DType::kFloat32);
  params.weight = Tensor::zeros({8}, DType::kFloat32);
  EXPECT_DEATH(latent_norm_rope_cache(Stream(&pool), params), "rank");
  params = make_params({2, 2, 16, 8}, DType::kFloat32);
  params.cache = Tensor::zeros({kNumBlocks, 8, 16}, DType::kFloat32);
  EXPECT_DEATH(latent_norm_rope_cache(Stream(&pool), params), "\\[latent_norm_rope_cache\\] cache");
}

}  // namespace
}  // namespace atom::ops
