#include "ops/rms_norm/rms_norm.h"

#include <gtest/gtest.h>

#include <cstring>

#include "ops/quantize/quantize_variants.h"
#include "ops/rms_norm/rms_norm_variants.h"
#include "ops/test_tensors.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

constexpr float kEps = 1e-5f;

struct Case {
  int64_t num_tokens, size;
};

const Case kCases[] = {{1, 1},
                       {3, 7},
                       {5, 64},
                       {2, 200},
                       {33, 2048},
                       {7, 4096},
                       {3, 12296},
                       {2, 128},
                       {9, 1536},
                       {4, 7168},
                       {2, 16512}};

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

struct Inputs {
  Tensor x, residual, weight;

  Inputs(const Case& c, DType dtype, DType weight_dtype, bool adds, float bound)
      : x(random_tensor({c.num_tokens, c.size + 8}, dtype, 2, bound).narrow(1, 8, c.size)),
        weight(random_tensor({c.size}, weight_dtype, 1, 2.0f)) {
    if (adds) residual = random_tensor({c.num_tokens, c.size}, dtype, 3, bound);
  }
};

constexpr QuantType kGranularities[] = {
    QuantType::kPerToken, QuantType::kPerTensor, QuantType::kPer1x128};

QuantizedRows make_rows(const Case& c, QuantType granularity) {
  const Tensor values =
      Tensor::zeros({c.num_tokens, c.size + 16}, DType::kFloat8E4M3).narrow(1, 0, c.size);
  const bool is_static = granularity == QuantType::kPerTensor;
  Shape shape = {is_static ? 1 : c.num_tokens};
  if (granularity == QuantType::kPer1x128) shape = {c.num_tokens, (c.size + 127) / 128};
  const Tensor scales = Tensor::zeros(shape, DType::kFloat32);
  if (is_static) scales.data<float>()[0] = 0.0171f;
  return {values, scales, granularity, is_static};
}

bool run(const char* variant,
         ThreadPool& pool,
         const Inputs& in,
         const QuantizedRows& out,
         const Tensor& rows = {}) {
  return run_variant(variant,
                     pool,
                     {in.x, in.residual, in.weight, out.values, out.scales, rows},
                     [&](const Placed& at) {
                       return rms_norm_by(
                           variant,
                           at.stream(),
                           at(in.x),
                           at(in.residual),
                           at(in.weight),
                           kEps,
                           at(rows),
                           {at(out.values), at(out.scales), out.granularity, out.is_static});
                     });
}

// Norm by the same variant, then the reference's quantization of what it stored.
void run_apart(const char* variant, ThreadPool& pool, const Inputs& in, const QuantizedRows& out) {
  const Tensor y = Tensor::zeros(in.x.shape(), in.x.dtype());
  run_variant(variant, pool, {in.x, in.residual, in.weight, y}, [&](const Placed& at) {
    return rms_norm_by(variant, at.stream(), at(in.x), at(in.residual), at(in.weight), kEps, at(y));
  });
  quantize_by("reference", Stream(&pool), y, out);
}

void expect_codes_of_the_two_operators(
    const Case& c, DType dtype, DType weight_dtype, bool adds, QuantType granularity) {
  ThreadPool pool(2);
  for (const char* variant : kAllVariants) {
    const Inputs fused(c, dtype, weight_dtype, adds, 3.0f);
    const Inputs apart(c, dtype, weight_dtype, adds, 3.0f);
    const QuantizedRows got = make_rows(c, granularity), expected = make_rows(c, granularity);
    if (!run(variant, pool, fused, got)) continue;
    run_apart(variant, pool, apart, expected);
    const std::string what = std::string(variant) + " " + fused.x.to_string() +
                             (adds ? " +residual " : " ") + quant_type_name(granularity);
    EXPECT_TRUE(equal(values_of_codes(got.values), values_of_codes(expected.values))) << what;
    EXPECT_TRUE(equal(values_of(got.scales), values_of(expected.scales))) << what;
    EXPECT_TRUE(!adds || equal(values_of(fused.residual), values_of(apart.residual))) << what;
  }
}

TEST(RmsNormCodes, EveryVariantGivesTheCodesOfTheTwoOperators) {
  for (const DType dtype : kFloatDTypes) {
    for (const DType weight_dtype : {dtype, DType::kFloat32}) {
      for (const Case& c : kCases) {
        for (const bool adds : {false, true}) {
          for (const QuantType granularity : kGranularities) {
            expect_codes_of_the_two_operators(c, dtype, weight_dtype, adds, granularity);
          }
        }
      }
    }
  }
}

void expect_rows_beside_codes(const char* variant, const Case& c, QuantType granularity) {
  ThreadPool pool(2);
  const Inputs both(c, DType::kBFloat16, DType::kFloat32, true, 3.0f);
  const Inputs apart(c, DType::kBFloat16, DType::kFloat32, true, 3.0f);
  const QuantizedRows got = make_rows(c, granularity), expected = make_rows(c, granularity);
  const Tensor rows = Tensor::zeros({c.num_tokens, c.size + 8}, DType::kBFloat16);
  const Tensor out = rows.narrow(1, 0, c.size);
  const Tensor expected_out = Tensor::zeros({c.num_tokens, c.size}, DType::kBFloat16);
  if (!run(variant, pool, both, got, out)) return;
  run_variant(
      variant, pool, {apart.x, apart.residual, apart.weight, expected_out}, [&](const Placed& at) {
        return rms_norm_by(variant,
                           at.stream(),
                           at(apart.x),
                           at(apart.residual),
                           at(apart.weight),
                           kEps,
                           at(expected_out));
      });
  quantize_by("reference", Stream(&pool), expected_out, expected);
  const std::string what =
      std::string(variant) + " " + both.x.to_string() + " " + quant_type_name(granularity);
  EXPECT_TRUE(equal(values_of(out), values_of(expected_out))) << what;
  EXPECT_TRUE(equal(values_of_codes(got.values), values_of_codes(expected.values))) << what;
  EXPECT_TRUE(equal(values_of(got.scales), values_of(expected.scales))) << what;
}

TEST(RmsNormCodes, RowsComeBesideCodes) {
  for (const char* variant : kAllVariants) {
    for (const Case& c : kCases) {
      for (const QuantType granularity : kGranularities) {
        expect_rows_beside_codes(variant, c, granularity);
      }
    }
    expect_rows_beside_codes(variant, {1030, 2048}, QuantType::kPer1x128);
  }
}

// So many that a GPU divides its blocks otherwise.
TEST(RmsNormCodes, ManyRowsHaveTheCodesOfTheTwoOperators) {
  for (const int64_t size : {1288, 9000}) {
    expect_codes_of_the_two_operators(
        {1030, size}, DType::kBFloat16, DType::kBFloat16, true, QuantType::kPerToken);
  }
  for (const int64_t size : {1536, 7168}) {
    expect_codes_of_the_two_operators(
        {1030, size}, DType::kBFloat16, DType::kBFloat16, true, QuantType::kPer1x128);
  }
}

TEST(RmsNormCodes, RowsOfZerosHaveTheScaleOne) {
  ThreadPool pool(1);
  const Case c = {2, 512};
  for (const char* variant : kAllVariants) {
    const Inputs in(c, DType::kBFloat16, DType::kBFloat16, false, 0.0f);
    const QuantizedRows got = make_rows(c, QuantType::kPerToken);
    if (!run(variant, pool, in, got)) continue;
    for (const double scale : values_of(got.scales)) EXPECT_EQ(scale, 1.0) << variant;
    for (const double value : values_of_codes(got.values)) EXPECT_EQ(value, 0.0) << variant;
  }
}

TEST(RmsNormCodes, PublicCallPicksAVariantAndDryRunDoesNothing) {
  ThreadPool pool(1);
  const Case c = {3, 256};
  const Inputs in(c, DType::kBFloat16, DType::kBFloat16, true, 2.0f);
  const QuantizedRows got = make_rows(c, QuantType::kPerToken);
  Workspace scratch(1 << 16);
  add_rms_norm(Stream::dry_run(), in.x, in.residual, in.weight, kEps, Tensor(), got, scratch);
  for (const double value : values_of_codes(got.values)) ASSERT_EQ(value, 0.0);
  add_rms_norm(Stream(&pool), in.x, in.residual, in.weight, kEps, Tensor(), got, scratch);
  double largest = 0;
  for (const double value : values_of_codes(got.values))
    largest = std::max(largest, std::abs(value));
  EXPECT_EQ(largest, 448.0);
}

TEST(RmsNormCodesDeathTest, RefusesScalesOfAnotherCount) {
  const Tensor x = Tensor::meta({2, 64}, DType::kFloat32);
  const QuantizedRows out = {Tensor::meta({2, 64}, DType::kFloat8E4M3),
                             Tensor::meta({3}, DType::kFloat32)};
  const Tensor weight = Tensor::meta({64}, DType::kFloat32);
  Workspace scratch;
  EXPECT_DEATH(add_rms_norm(Stream::dry_run(), x, Tensor(), weight, kEps, Tensor(), out, scratch),
               "add_rms_norm");
}

}  // namespace
}  // namespace atom::ops
