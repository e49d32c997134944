#include "ops/silu_and_mul/silu_and_mul.h"

#include <gtest/gtest.h>

#include <cstring>

#include "ops/quantize/quantize_variants.h"
#include "ops/silu_and_mul/silu_and_mul_variants.h"
#include "ops/test_tensors.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

std::vector<double> values_of_codes(const Tensor& codes) {
  std::vector<double> values;
  for (int64_t row = 0; row < codes.size(0); ++row) {
    const Float8E4M3* begin = codes.data<Float8E4M3>() + row * codes.stride(0);
    for (int64_t i = 0; i < codes.size(1); ++i) values.push_back(to_float(begin[i]));
  }
  return values;
}

bool equal(const std::vector<double>& a, const std::vector<double>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

constexpr QuantType kGranularities[] = {
    QuantType::kPerToken, QuantType::kPerTensor, QuantType::kPer1x128};

QuantizedRows make_rows(int64_t num_tokens, int64_t size, QuantType granularity) {
  const Tensor values =
      Tensor::zeros({num_tokens, size + 16}, DType::kFloat8E4M3).narrow(1, 0, size);
  const bool is_static = granularity == QuantType::kPerTensor;
  Shape shape = {is_static ? 1 : num_tokens};
  if (granularity == QuantType::kPer1x128) shape = {num_tokens, (size + 127) / 128};
  const Tensor scales = Tensor::zeros(shape, DType::kFloat32);
  if (is_static) scales.data<float>()[0] = 0.0171f;
  return {values, scales, granularity, is_static};
}

bool run(const char* variant,
         ThreadPool& pool,
         const Tensor& gate_up,
         const QuantizedRows& out,
         const Tensor& rows = {}) {
  return run_variant(variant, pool, {gate_up, out.values, out.scales, rows}, [&](const Placed& at) {
    return silu_and_mul_by(variant,
                           at.stream(),
                           at(gate_up),
                           at(rows),
                           {at(out.values), at(out.scales), out.granularity, out.is_static});
  });
}

// The product by the same variant, then the reference's quantization of what it stored.
void run_apart(const char* variant,
               ThreadPool& pool,
               const Tensor& gate_up,
               const QuantizedRows& out) {
  const Tensor y = Tensor::zeros({gate_up.size(0), gate_up.size(1) / 2}, gate_up.dtype());
  run_variant(variant, pool, {gate_up, y}, [&](const Placed& at) {
    return silu_and_mul_by(variant, at.stream(), at(gate_up), at(y));
  });
  quantize_by("reference", Stream(&pool), y, out);
}

TEST(SiluAndMulCodes, EveryVariantGivesTheCodesOfTheTwoOperators) {
  ThreadPool pool(2);
  for (const char* variant : kAllVariants) {
    for (const DType dtype : kFloatDTypes) {
      for (const int64_t num_tokens : {1, 5, 40}) {
        for (const int64_t size : {1, 7, 64, 768, 3072, 33000}) {
          for (const QuantType granularity : kGranularities) {
            const Tensor gate_up =
                random_tensor({num_tokens, 2 * size + 8}, dtype, 1, 6.0f).narrow(1, 8, 2 * size);
            const QuantizedRows got = make_rows(num_tokens, size, granularity),
                                expected = make_rows(num_tokens, size, granularity);
            if (!run(variant, pool, gate_up, got)) continue;
            run_apart(variant, pool, gate_up, expected);
            const std::string what = std::string(variant) + " " + gate_up.to_string() + " " +
                                     quant_type_name(granularity);
            EXPECT_TRUE(equal(values_of_codes(got.values), values_of_codes(expected.values)))
                << what;
            EXPECT_TRUE(equal(values_of(got.scales), values_of(expected.scales))) << what;
          }
        }
      }
    }
  }
}

TEST(SiluAndMulCodes, RowsComeBesideCodes) {
  ThreadPool pool(2);
  for (const char* variant : kAllVariants) {
    for (const int64_t size : {7, 768}) {
      const Tensor gate_up = random_tensor({5, 2 * size}, DType::kBFloat16, 1, 6.0f);
      const QuantizedRows got = make_rows(5, size, QuantType::kPerToken),
                          expected = make_rows(5, size, QuantType::kPerToken);
      const Tensor out = Tensor::zeros({5, size + 8}, DType::kBFloat16).narrow(1, 0, size);
      const Tensor expected_out = Tensor::zeros({5, size}, DType::kBFloat16);
      if (!run(variant, pool, gate_up, got, out)) continue;
      run_variant(variant, pool, {gate_up, expected_out}, [&](const Placed& at) {
        return silu_and_mul_by(variant, at.stream(), at(gate_up), at(expected_out));
      });
      quantize_by("reference", Stream(&pool), expected_out, expected);
      EXPECT_TRUE(equal(values_of(out), values_of(expected_out))) << variant;
      EXPECT_TRUE(equal(values_of_codes(got.values), values_of_codes(expected.values))) << variant;
    }
  }
}

TEST(SiluAndMulCodes, PublicCallPicksAVariantAndDryRunDoesNothing) {
  ThreadPool pool(1);
  const Tensor gate_up = random_tensor({2, 512}, DType::kBFloat16, 1, 3.0f);
  const QuantizedRows got = make_rows(2, 256, QuantType::kPerToken);
  Workspace scratch(1 << 16);
  silu_and_mul(Stream::dry_run(), gate_up, Tensor(), got, scratch);
  for (const double value : values_of_codes(got.values)) ASSERT_EQ(value, 0.0);
  silu_and_mul(Stream(&pool), gate_up, Tensor(), got, scratch);
  double largest = 0;
  for (const double value : values_of_codes(got.values))
    largest = std::max(largest, std::abs(value));
  EXPECT_EQ(largest, 448.0);
}

TEST(SiluAndMulCodesDeathTest, RefusesAnotherWidth) {
  const QuantizedRows out = {Tensor::meta({2, 255}, DType::kFloat8E4M3),
                             Tensor::meta({2}, DType::kFloat32)};
  const Tensor gate_up = Tensor::meta({2, 512}, DType::kFloat32);
  Workspace scratch;
  EXPECT_DEATH(silu_and_mul(Stream::dry_run(), gate_up, Tensor(), out, scratch), "does not hold");
}

}  // namespace
}  // namespace atom::ops
