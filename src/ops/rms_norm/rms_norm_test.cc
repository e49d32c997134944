#include "ops/rms_norm/rms_norm.h"

#include <gtest/gtest.h>

#include "ops/rms_norm/rms_norm_variants.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

constexpr float kEps = 1e-5f;

// The norm of rows of `size`, in double but for the roundings that the contract names.
std::vector<double> expected_norm(const std::vector<double>& x,
                                  const std::vector<double>& weight,
                                  DType dtype,
                                  bool rounds_once) {
  const size_t size = weight.size();
  std::vector<double> out(x.size());
  for (size_t begin = 0; begin < x.size(); begin += size) {
    double squares = 0;
    for (size_t i = 0; i < size; ++i) squares += x[begin + i] * x[begin + i];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(size) + kEps);
    for (size_t i = 0; i < size; ++i) {
      const double y = x[begin + i] * scale;
      out[begin + i] = weight[i] * (rounds_once ? y : rounded(y, dtype));
    }
  }
  return out;
}

bool run(const char* variant,
         ThreadPool& pool,
         const Tensor& x,
         const Tensor& residual,
         const Tensor& weight,
         const Tensor& out) {
  return run_variant(variant, pool, {x, residual, weight, out}, [&](const Placed& at) {
    return rms_norm_by(variant, at.stream(), at(x), at(residual), at(weight), kEps, at(out));
  });
}

double tolerance(DType dtype) {
  // A y that falls on a rounding boundary may go either way: one unit more than the final rounding.
  return dtype == DType::kFloat32 ? 1e-5 : 3.1 * half_ulp(dtype);
}

struct Case {
  int64_t num_tokens, num_heads, size;  // num_heads 0: rank 2
};

const Case kCases[] = {{1, 0, 1},
                       {3, 0, 7},
                       {5, 0, 64},
                       {2, 0, 200},
                       {40, 0, 2048},
                       {1, 0, 5120},
                       {9, 4, 128},
                       {300, 3, 64},
                       {2, 2, 20},
                       {1030, 0, 1288}};

TEST(RmsNorm, EveryVariantMatchesDoubleArithmetic) {
  ThreadPool pool(2);
  for (const char* variant : kAllVariants) {
    for (const DType dtype : kFloatDTypes) {
      for (const DType weight_dtype : {dtype, DType::kFloat32}) {
        for (const Case& c : kCases) {
          const Tensor weight = random_tensor({c.size}, weight_dtype, 1, 2.0f);
          // With heads: the middle of a packed row.
          Tensor x;
          if (c.num_heads == 0) {
            x = random_tensor({c.num_tokens, c.size}, dtype, 2, 3.0f);
          } else {
            x = random_tensor({c.num_tokens, c.num_heads + 3, c.size}, dtype, 2, 3.0f)
                    .narrow(1, 1, c.num_heads);
          }
          const Tensor out = Tensor::zeros(x.shape(), dtype);
          if (!run(variant, pool, x, Tensor(), weight, out)) continue;
          const bool rounds_once = weight_dtype == DType::kFloat32;
          const auto expected = expected_norm(values_of(x), values_of(weight), dtype, rounds_once);
          const std::string what = std::string(variant) + " " + x.to_string();
          expect_close(out, expected, tolerance(dtype), 1e-7, what);

          run(variant, pool, x, Tensor(), weight, x);
          EXPECT_EQ(values_of(x), values_of(out)) << "in place, " << what;
        }
      }
    }
  }
}

TEST(RmsNorm, AddsTheResidualFirstAndNormalizesTheRoundedSum) {
  ThreadPool pool(2);
  for (const char* variant : kAllVariants) {
    for (const DType dtype : kFloatDTypes) {
      for (const Case& c : kCases) {
        if (c.num_heads != 0) continue;
        const Tensor x = random_tensor({c.num_tokens, c.size}, dtype, 1);
        const Tensor residual = random_tensor({c.num_tokens, c.size}, dtype, 2, 8.0f);
        const Tensor weight = random_tensor({c.size}, dtype, 3);
        std::vector<double> sum = values_of(x);
        const std::vector<double> old = values_of(residual);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] = rounded(sum[i] + old[i], dtype);
        if (!run(variant, pool, x, residual, weight, x)) continue;
        const std::string what = std::string(variant) + " " + x.to_string();
        EXPECT_EQ(values_of(residual), sum) << what;
        const auto expected = expected_norm(sum, values_of(weight), dtype, false);
        expect_close(x, expected, tolerance(dtype), 1e-7, what);
      }
    }
  }
}

// The first rows of `x`, in one call with all of them and in a call of their own.
TEST(RmsNorm, ARowDoesNotDependOnHowManyThereAre) {
  constexpr int64_t kManyRows = 1030, kFewRows = 3;
  ThreadPool pool(2);
  for (const char* variant : kAllVariants) {
    for (const int64_t size : {1288, 4096, 5128, 9000}) {
      const Tensor x = random_tensor({kManyRows, size}, DType::kBFloat16, 1);
      const Tensor residual = random_tensor({kManyRows, size}, DType::kBFloat16, 2);
      const Tensor weight = random_tensor({size}, DType::kBFloat16, 3);
      const Tensor few_x = x.narrow(0, 0, kFewRows);
      const Tensor few_residual =
          random_tensor({kManyRows, size}, DType::kBFloat16, 2).narrow(0, 0, kFewRows);
      const Tensor out = Tensor::zeros({kManyRows, size}, DType::kBFloat16);
      const Tensor few_out = Tensor::zeros({kFewRows, size}, DType::kBFloat16);
      if (!run(variant, pool, x, residual, weight, out)) continue;
      run(variant, pool, few_x, few_residual, weight, few_out);
      const std::string what = std::string(variant) + " " + x.to_string();
      EXPECT_EQ(values_of(few_out), values_of(out.narrow(0, 0, kFewRows))) << what;
      EXPECT_EQ(values_of(few_residual), values_of(residual.narrow(0, 0, kFewRows))) << what;
    }
  }
}

TEST(RmsNorm, PublicCallsPickAVariant) {
  ThreadPool pool(1);
  const Stream stream(&pool);
  const Tensor x = random_tensor({4, 256}, DType::kBFloat16, 1);
  const Tensor weight = random_tensor({256}, DType::kBFloat16, 2);
  const Tensor residual = random_tensor({4, 256}, DType::kBFloat16, 3);
  const Tensor out = Tensor::zeros({4, 256}, DType::kBFloat16);
  rms_norm(stream, x, weight, kEps, out);
  expect_close(out,
               expected_norm(values_of(x), values_of(weight), x.dtype(), false),
               tolerance(x.dtype()),
               1e-7,
               "rms_norm");
  add_rms_norm(stream, x, residual, weight, kEps, out);
  expect_close(out,
               expected_norm(values_of(residual), values_of(weight), x.dtype(), false),
               tolerance(x.dtype()),
               1e-7,
               "add_rms_norm");
}

TEST(RmsNorm, DryRunTouchesNothing) {
  const Tensor x = Tensor::meta({4, 256}, DType::kBFloat16);
  const Tensor weight = Tensor::meta({256}, DType::kBFloat16);
  rms_norm(Stream::dry_run(), x, weight, kEps, x);
  add_rms_norm(Stream::dry_run(), x, x, weight, kEps, x);
}

TEST(RmsNormDeathTest, RefusesAnotherHiddenSize) {
  const Tensor x = Tensor::meta({4, 256}, DType::kBFloat16);
  const Tensor weight = Tensor::meta({128}, DType::kBFloat16);
  EXPECT_DEATH(rms_norm(Stream::dry_run(), x, weight, kEps, x), "\\[rms_norm\\] weight");
}

}  // namespace
}  // namespace atom::ops
