#include "ops/silu_and_mul/silu_and_mul.h"

#include <gtest/gtest.h>

#include "ops/silu_and_mul/silu_and_mul_variants.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

std::vector<double> expected_product(const Tensor& gate_up) {
  const std::vector<double> values = values_of(gate_up);
  const int64_t size = gate_up.size(1) / 2;
  std::vector<double> out;
  for (int64_t t = 0; t < gate_up.size(0); ++t) {
    const double* row = values.data() + t * 2 * size;
    for (int64_t i = 0; i < size; ++i)
      out.push_back(row[i] / (1 + std::exp(-row[i])) * row[size + i]);
  }
  return out;
}

bool run(const char* variant, ThreadPool& pool, const Tensor& gate_up, const Tensor& out) {
  return run_variant(variant, pool, {gate_up, out}, [&](const Placed& at) {
    return silu_and_mul_by(variant, at.stream(), at(gate_up), at(out));
  });
}

double tolerance(DType dtype) {
  return dtype == DType::kFloat32 ? 1e-5 : 1.02 * half_ulp(dtype);
}

TEST(SiluAndMul, EveryVariantMatchesDoubleArithmetic) {
  ThreadPool pool(2);
  for (const char* variant : kAllVariants) {
    for (const DType dtype : kFloatDTypes) {
      for (const int64_t num_tokens : {1, 3, 40}) {
        for (const int64_t size : {1, 7, 16, 100, 768, 3072}) {
          for (const float scale : {1.0f, 60.0f}) {
            const Tensor gate_up =
                random_tensor({num_tokens, 2 * size + 3}, dtype, 1, scale).narrow(1, 3, 2 * size);
            const Tensor wide = Tensor::zeros({num_tokens, size + 1}, dtype);
            const Tensor out = wide.narrow(1, 0, size);
            if (!run(variant, pool, gate_up, out)) continue;
            const std::string what = std::string(variant) + " " + gate_up.to_string();
            // float16 has subnormals from 6e-5 down.
            const double absolute = dtype == DType::kFloat16 ? 3e-8 : 1e-30;
            expect_close(out, expected_product(gate_up), tolerance(dtype), absolute, what);
            for (const double rest : values_of(wide.narrow(1, size, 1))) EXPECT_EQ(rest, 0.0);
          }
        }
      }
    }
  }
}

TEST(SiluAndMul, LargeGatesSaturate) {
  ThreadPool pool(1);
  for (const char* variant : kAllVariants) {
    const Tensor gate_up = Tensor::zeros({1, 32}, DType::kFloat32);
    for (int i = 0; i < 32; ++i)
      gate_up.data<float>()[i] = i < 8 ? -1000.0f : i < 16 ? 1000.0f : 2.0f;
    const Tensor out = Tensor::zeros({1, 16}, DType::kFloat32);
    if (!run(variant, pool, gate_up, out)) continue;
    for (int i = 0; i < 16; ++i) EXPECT_EQ(out.data<float>()[i], i < 8 ? 0.0f : 2000.0f) << variant;
    gate_up.data<float>()[3] = NAN;
    run(variant, pool, gate_up, out);
    EXPECT_TRUE(std::isnan(out.data<float>()[3])) << variant;
  }
}

TEST(SiluAndMul, PublicCallPicksAVariantAndDryRunDoesNothing) {
  ThreadPool pool(1);
  const Tensor gate_up = random_tensor({2, 512}, DType::kBFloat16, 1);
  const Tensor out = Tensor::zeros({2, 256}, DType::kBFloat16);
  silu_and_mul(Stream::dry_run(), gate_up, out);
  for (const double value : values_of(out)) ASSERT_EQ(value, 0.0);
  silu_and_mul(Stream(&pool), gate_up, out);
  expect_close(out, expected_product(gate_up), tolerance(DType::kBFloat16), 1e-30, "public");
}

TEST(SiluAndMulDeathTest, RefusesAnotherWidth) {
  EXPECT_DEATH(silu_and_mul(Stream::dry_run(),
                            Tensor::meta({2, 512}, DType::kFloat32),
                            Tensor::meta({2, 255}, DType::kFloat32)),
               "does not hold");
}

}  // namespace
}  // namespace atom::ops
