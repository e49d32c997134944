#include "ops/rms_norm_gated/rms_norm_gated.h"

#include <gtest/gtest.h>

#include "ops/quantize/quantize_variants.h"
#include "ops/quantize/test_codes.h"
#include "ops/rms_norm_gated/rms_norm_gated_variants.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

constexpr float kEps = 1e-6f;

std::vector<double> expected_norm(const std::vector<double>& x,
                                  const std::vector<double>& gate,
                                  const std::vector<double>& weight) {
  const size_t size = weight.size();
  std::vector<double> out(x.size());
  for (size_t begin = 0; begin < x.size(); begin += size) {
    double squares = 0;
    for (size_t i = 0; i < size; ++i) squares += x[begin + i] * x[begin + i];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(size) + kEps);
    for (size_t i = 0; i < size; ++i) {
      const double z = gate[begin + i];
      out[begin + i] = x[begin + i] * scale * weight[i] * z / (1.0 + std::exp(-z));
    }
  }
  return out;
}

struct Case {
  int64_t num_tokens, num_heads, head_dim;
};

const Case kCases[] = {{1, 1, 1}, {2, 3, 20}, {1, 32, 128}, {130, 4, 128}, {3, 2, 200}};

TEST(RmsNormGated, EveryVariantMatchesDoubleArithmetic) {
  ThreadPool pool(2);
  for (const char* variant : kAllVariants) {
    for (const DType dtype : kFloatDTypes) {
      for (const Case& c : kCases) {
        // x is one section of a packed row, the gate another.
        const Tensor packed =
            random_tensor({c.num_tokens, 3 * c.num_heads * c.head_dim}, dtype, 1, 4.0f);
        const Tensor x = packed.narrow(1, 0, c.num_heads * c.head_dim);
        const Tensor gate = packed.narrow(1, 2 * x.size(1), x.size(1));
        const Tensor weight = random_tensor({c.head_dim}, DType::kFloat32, 2, 2.0f);
        const Tensor out = Tensor::zeros(x.shape(), dtype);
        const auto expected = expected_norm(values_of(x), values_of(gate), values_of(weight));
        const auto run = [&](const Tensor& to) {
          return run_variant(variant, pool, {x, gate, weight, to}, [&](const Placed& at) {
            return rms_norm_gated_by(
                variant, at.stream(), at(x), at(gate), at(weight), kEps, at(to));
          });
        };
        if (!run(out)) continue;
        const std::string what = std::string(variant) + " " + x.to_string();
        expect_close(
            out, expected, dtype == DType::kFloat32 ? 2e-6 : 1.01 * half_ulp(dtype), 1e-7, what);
        run(x);
        EXPECT_EQ(values_of(x), values_of(out)) << "in place, " << what;
      }
    }
  }
}

TEST(RmsNormGated, EveryVariantLeavesTheCodesOfItsRows) {
  ThreadPool pool(2);
  for (const char* variant : kAllVariants) {
    for (const DType dtype : kFloatDTypes) {
      for (const Case& c : {Case{1, 32, 128}, Case{131, 4, 128}, Case{9, 3, 256}, Case{2, 2, 64}}) {
        const Shape shape = {c.num_tokens, c.num_heads * c.head_dim};
        const Tensor x = random_tensor(shape, dtype, 1, 4.0f);
        const Tensor gate = random_tensor(shape, dtype, 2, 4.0f);
        const Tensor weight = random_tensor({c.head_dim}, DType::kFloat32, 3, 2.0f);
        const QuantizedRows got = spoiled_group_codes(shape[0], shape[1]),
                            expected = spoiled_group_codes(shape[0], shape[1]);
        const Tensor rows = Tensor::zeros(shape, dtype);
        const auto run = [&](const Tensor& to, const QuantizedRows& codes) {
          return run_variant(variant,
                             pool,
                             {x, gate, weight, to, codes.values, codes.scales},
                             [&](const Placed& at) {
                               return rms_norm_gated_by(
                                   variant,
                                   at.stream(),
                                   at(x),
                                   at(gate),
                                   at(weight),
                                   kEps,
                                   at(to),
                                   {at(codes.values), at(codes.scales), codes.granularity});
                             });
        };
        if (!run({}, got)) continue;
        ASSERT_TRUE(run(rows, {}));
        ASSERT_TRUE(quantize_by("reference", Stream(&pool), rows, expected));
        const std::string what = std::string(variant) + " " + x.to_string();
        EXPECT_TRUE(have_same_bits(got, expected)) << what;
      }
    }
  }
}

// The public call takes two operators where no kernel leaves these codes.
TEST(RmsNormGated, CodesComeInEveryFormat) {
  ThreadPool pool(2);
  const Shape shape = {5, 192};
  const Tensor x = random_tensor(shape, DType::kBFloat16, 1, 4.0f);
  const Tensor weight = random_tensor({96}, DType::kFloat32, 3, 2.0f);
  const Tensor rows = Tensor::zeros(shape, DType::kBFloat16);
  rms_norm_gated(Stream(&pool), x, x, weight, kEps, rows);
  for (const CodeFormat& format : {CodeFormat{QuantType::kPerToken, DType::kInt8},
                                   CodeFormat{QuantType::kPer1x128},
                                   CodeFormat{QuantType::kPer1x32, DType::kUInt8}}) {
    Workspace scratch(1 << 16);
    const QuantizedRows got = quantized_rows(format, shape[0], shape[1], scratch);
    const QuantizedRows expected = quantized_rows(format, shape[0], shape[1], scratch);
    rms_norm_gated(Stream(&pool), x, x, weight, kEps, {}, got, scratch);
    quantize(Stream(&pool), rows, expected);
    EXPECT_TRUE(have_same_bits(got, expected));
  }
}

TEST(RmsNormGated, DryRunTouchesNothing) {
  const Tensor x = Tensor::meta({4, 256}, DType::kBFloat16);
  rms_norm_gated(Stream::dry_run(), x, x, Tensor::meta({128}, DType::kFloat32), kEps, x);
}

TEST(RmsNormGatedDeathTest, RefusesRowsThatAreNotWholeHeads) {
  const Tensor x = Tensor::meta({4, 256}, DType::kBFloat16);
  const Tensor weight = Tensor::meta({96}, DType::kFloat32);
  EXPECT_DEATH(rms_norm_gated(Stream::dry_run(), x, x, weight, kEps, x), "weight.size\\(0\\) == 0");
}

}  // namespace
}  // namespace atom::ops
