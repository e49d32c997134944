#include "ops/latent_norm_rope_cache/latent_norm_rope_cache.h"

#include <gtest/gtest.h>

#include "ops/latent_norm_rope_cache/latent_norm_rope_cache_variants.h"
#include "ops/test_tensors.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

constexpr int64_t kNumBlocks = 34, kBlockSize = 16, kMaxPosition = 97;

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
  params.positions = Tensor::zeros({c.num_tokens}, DType::kInt32);
  params.slot_mapping = Tensor::zeros({c.num_tokens}, DType::kInt32);
  for (int64_t t = 0; t < c.num_tokens; ++t) {
    params.positions.data<int32_t>()[t] = static_cast<int32_t>((t * 31 + 17) % kMaxPosition);
    params.slot_mapping.data<int32_t>()[t] =
        t % 10 == 3 ? -1 : static_cast<int32_t>((t * 37 + 5) % (kNumBlocks * kBlockSize));
  }
  params.cos_sin = random_tensor({kMaxPosition, c.rope_dim}, DType::kFloat32, 4);
  params.style = c.style;
  params.cache =
      Tensor::zeros({kNumBlocks, kBlockSize, row}, c.float8_cache ? DType::kFloat8E4M3 : dtype);
  return params;
}

void rotate(const LatentNormRopeCacheParams& params, int64_t position, double* x) {
  const int64_t half = params.cos_sin.size(1) / 2;
  const float* angles = params.cos_sin.data<float>() + position * 2 * half;
  for (int64_t i = 0; i < half; ++i) {
    const bool neox = params.style == RotaryStyle::kNeoX;
    double& first = x[neox ? i : 2 * i];
    double& second = x[neox ? i + half : 2 * i + 1];
    const double a = first, b = second;
    first = rounded(a * angles[i] - b * angles[half + i], params.q.dtype());
    second = rounded(b * angles[i] + a * angles[half + i], params.q.dtype());
  }
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
  rotate(params, position, row.data() + rank);
  return row;
}

double value_at(const Tensor& tensor, int64_t index) {
  if (tensor.dtype() == DType::kFloat8E4M3) return to_float(tensor.data<Float8E4M3>()[index]);
  double value = 0;
  dispatch_float(tensor.dtype(),
                 [&]<typename T>(TypeTag<T>) { value = to_float(tensor.data<T>()[index]); });
  return value;
}

// Counts elements that are not the expected ones. A float32 between may have been rounded the other
// way, so few may be a step away, but none further.
class Comparison {
 public:
  explicit Comparison(DType dtype) : step_(2.1 * half_ulp(dtype)) {}
  void add(double got, double expected, bool float8) {
    ++num_elements_;
    const double wanted =
        float8 ? to_float(from_float<Float8E4M3>(static_cast<float>(expected))) : expected;
    // A step of FP8 is an eighth of the value or 2^-9.
    const double allowed =
        float8 ? std::abs(wanted) * 0x1p-3 + 0x1p-9 : step_ * (std::abs(wanted) + 16);
    ASSERT_LE(std::abs(got - wanted), allowed) << "should be " << wanted;
    num_different_ += got != wanted;
  }
  void finish(bool is_exact_dtype) const {
    if (is_exact_dtype) {
      EXPECT_LE(num_different_ * 50, num_elements_) << "of " << num_elements_;
    }
  }

 private:
  double step_;
  int64_t num_elements_ = 0, num_different_ = 0;
};

void check_result(const LatentNormRopeCacheParams& got, const LatentNormRopeCacheParams& before) {
  Comparison comparison(got.q.dtype());
  const std::vector<double> q_out = values_of(got.q), kv = values_of(before.kv);
  std::vector<double> q = values_of(before.q);
  const int64_t num_heads = got.q.size(1), size = got.q.size(2), row_size = got.kv.size(2);
  const bool float8 = got.cache.dtype() == DType::kFloat8E4M3;
  std::vector<bool> is_written(kNumBlocks * kBlockSize, false);
  for (int64_t t = 0; t < got.q.size(0); ++t) {
    const int64_t position = got.positions.data<int32_t>()[t];
    for (int64_t h = 0; h < num_heads; ++h) {
      const int64_t head = (t * num_heads + h) * size;
      rotate(before, position, q.data() + head);
      for (int64_t i = head; i < head + size; ++i) comparison.add(q_out[i], q[i], false);
    }
    const int64_t slot = got.slot_mapping.data<int32_t>()[t];
    if (slot < 0) continue;
    is_written[slot] = true;
    const auto row = expected_row(before, kv.data() + t * row_size, position);
    for (int64_t i = 0; i < row_size; ++i) {
      comparison.add(value_at(got.cache, slot * row_size + i), row[i], float8);
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
