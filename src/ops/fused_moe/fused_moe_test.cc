#include "ops/fused_moe/fused_moe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ops/fused_moe/moe_test_layer.h"

namespace atom::ops {
namespace {

using namespace moe_test;

std::vector<FusedMoeVariant> variants_here() {
  std::vector<FusedMoeVariant> variants;
  for (const FusedMoeVariant& variant : fused_moe_variants()) {
    if (variant.device == DeviceType::kCpu && variant.isa <= cpu_isa()) variants.push_back(variant);
  }
  return variants;
}

// Of tokens [first, first + count).
Tensor run(const FusedMoeVariant& variant,
           ThreadPool& pool,
           const Layer& layer,
           int64_t first,
           int64_t count) {
  const DType y_dtype = layer.options.y_dtype.value_or(layer.options.dtype);
  const Tensor y = Tensor::zeros({count, layer.sizes.hidden_size + 3}, y_dtype)
                       .narrow(1, 0, layer.sizes.hidden_size);
  const Tensor x = layer.x.narrow(0, first, count), ids = layer.ids.narrow(0, first, count);
  const Tensor weights = layer.weights.narrow(0, first, count);
  const ExpertWeights experts = layer.experts();
  FusedMoeCall call{x, ids, weights, experts, layer.options.activation, y};
  if (layer.x_codes.defined()) {
    call.x_codes = layer.x_codes;
    call.x_codes.values = layer.x_codes.values.narrow(0, first, count);
    call.x_codes.scales = layer.x_codes.scales.narrow(0, first, count);
  }
  Workspace measure;
  variant.launch(Stream::dry_run(), call, measure);
  Workspace scratch(measure.peak_size());
  variant.launch(Stream(&pool), call, scratch);
  return y;
}

Tensor run(const FusedMoeVariant& variant, ThreadPool& pool, const Layer& layer) {
  return run(variant, pool, layer, 0, layer.sizes.num_tokens);
}

TEST(FusedMoe, EveryVariantMatchesDoubleArithmetic) {
  ThreadPool pool(2);
  uint64_t seed = 1;
  for (const Sizes& sizes : kSizes) {
    for (const DType dtype : kFloatDTypes) {
      for (const GatedActivation& activation : kActivations) {
        Options options{.dtype = dtype, .activation = activation};
        options.seed = ++seed;
        options.has_bias = seed % 3 != 0;
        options.is_part = seed % 2 == 0 && sizes.num_experts > 1;
        if (seed % 5 == 0) options.y_dtype = DType::kFloat32;
        const Layer layer(sizes, options);
        const Expected expected = expected_of(layer);
        for (const FusedMoeVariant& variant : variants_here()) {
          const Tensor y = run(variant, pool, layer);
          expect_matches(expected, y, std::string(variant.name) + " " + layer.x.to_string());
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

void expect_same_bits(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.size(0), b.size(0));
  const int64_t row_size = a.size(1) * dtype_size(a.dtype());
  for (int64_t t = 0; t < a.size(0); ++t) {
    ASSERT_EQ(std::memcmp(a.narrow(0, t, 1).raw_data(), b.narrow(0, t, 1).raw_data(), row_size), 0)
        << what << " token " << t;
  }
}

TEST(FusedMoe, WeightsInEveryFormat) {
  ThreadPool pool(2);
  for (const QuantFormat& format : kFormats) {
    for (const DType dtype : kFloatDTypes) {
      const Layer layer({9, 3, 6, 256, 128}, {.dtype = dtype, .format = format, .has_bias = true});
      const Expected expected = expected_of(layer);
      for (const FusedMoeVariant& variant : variants_here()) {
        const Tensor y = run(variant, pool, layer);
        expect_matches(expected, y, std::string(variant.name) + " " + name_of(format));
        expect_same_bits(run(variant, pool, layer, 3, 2), y.narrow(0, 3, 2), name_of(format));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Both inputs in codes. Only in float32: `a` is rounded to x's dtype first, which moves codes.
TEST(FusedMoe, QuantizedInputs) {
  struct Formats {
    QuantFormat format;
    CodeFormat input;
  };
  constexpr QuantDType kFloat8 = QuantDType::kFloat8E4M3, kFloat4 = QuantDType::kFloat4E2M1;
  const Formats cases[] = {
      {{kFloat8, QuantType::kPerToken, 1}, {QuantType::kPerToken, DType::kFloat8E4M3}},
      {{kFloat8, QuantType::kPer128x128, 128}, {QuantType::kPer1x128, DType::kFloat8E4M3}},
      {{QuantDType::kInt8, QuantType::kPerToken, 1}, {QuantType::kPerToken, DType::kInt8}},
      {{kFloat4, QuantType::kPer1x32, 1}, {QuantType::kPer1x32, DType::kUInt8}},
  };
  ThreadPool pool(2);
  for (const Formats& c : cases) {
    const Layer layer({19, 3, 6, 256, 128}, {.format = c.format, .input = c.input});
    const Expected expected = expected_of(layer);
    Layer wide = layer, coded = layer;
    wide.options.input = {};
    coded.code_x();
    // Nothing else is read of x.
    coded.x = Tensor::zeros(layer.x.shape(), layer.x.dtype());
    double difference = 0, norm = 0;
    for (const FusedMoeVariant& variant : variants_here()) {
      const Tensor y = run(variant, pool, layer);
      expect_matches(expected, y, std::string(variant.name) + " " + name_of(c.format));
      expect_same_bits(run(variant, pool, layer, 3, 2), y.narrow(0, 3, 2), name_of(c.format));
      expect_same_bits(run(variant, pool, coded), y, name_of(c.format) + " given codes");
      expect_same_bits(run(variant, pool, coded, 3, 2), y.narrow(0, 3, 2), name_of(c.format));
      if (HasFatalFailure()) return;
      const std::vector<double> quantized = values_of(y),
                                plain = values_of(run(variant, pool, wide));
      for (size_t i = 0; i < plain.size(); ++i) {
        difference += (quantized[i] - plain[i]) * (quantized[i] - plain[i]);
        norm += plain[i] * plain[i];
      }
    }
    // Far over what is allowed above: the inputs were quantized.
    EXPECT_GT(std::sqrt(difference / norm), 5e-3) << name_of(c.format);
  }
}

// A scale of x for several groups of the weights', of which the last ones are fewer.
TEST(FusedMoe, QuantizedInputsOfWiderGroups) {
  constexpr QuantFormat kMxfp4 = {QuantDType::kFloat4E2M1, QuantType::kPer1x32, 1};
  ThreadPool pool(2);
  const CodeFormat input = {QuantType::kPer1x128, DType::kFloat8E4M3};
  const Layer layer({19, 3, 6, 288, 160}, {.format = kMxfp4, .input = input});
  const Expected expected = expected_of(layer);
  for (const FusedMoeVariant& variant : variants_here()) {
    const Tensor y = run(variant, pool, layer);
    expect_matches(expected, y, variant.name);
    expect_same_bits(run(variant, pool, layer, 3, 2), y.narrow(0, 3, 2), variant.name);
    if (HasFatalFailure()) return;
  }
}

TEST(FusedMoe, AGivenScaleIsThatOfEveryRow) {
  ThreadPool pool(2);
  Layer layer({7, 2, 4, 64, 64}, {.format = QuantFormat{}});
  const Tensor scale = Tensor::zeros({1}, DType::kFloat32);
  scale.data<float>()[0] = 1 / 64.0f;
  layer.options.input = {QuantType::kPerTensor, DType::kFloat8E4M3, scale};
  // Codes hold these values as they are.
  for (int64_t t = 0; t < 7; ++t) {
    float* row = layer.x.data<float>() + t * layer.x.stride(0);
    for (int64_t k = 0; k < 64; ++k) row[k] = static_cast<float>((t * 64 + k) % 9 - 4) / 4;
  }
  ExpertWeights experts = layer.experts(), wide = layer.experts();
  experts.down_input = {};
  wide.gate_up_input = wide.down_input = {};
  for (const FusedMoeVariant& variant : variants_here()) {
    std::vector<Tensor> results;
    for (const ExpertWeights& weights : {experts, wide}) {
      const Tensor y = Tensor::zeros({7, 64}, DType::kFloat32);
      const FusedMoeCall call{
          layer.x, layer.ids, layer.weights, weights, layer.options.activation, y};
      Workspace scratch(1 << 22);
      variant.launch(Stream(&pool), call, scratch);
      results.push_back(y);
    }
    const std::vector<double> got = values_of(results[0]), expected = values_of(results[1]);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-5) << variant.name;
  }
}

TEST(FusedMoe, ATokenIsTheSameInEveryBatchAndByEveryNumberOfThreads) {
  for (const DType dtype : kFloatDTypes) {
    Options options{.dtype = dtype, .has_bias = true, .is_part = true};
    const Layer layer({90, 3, 6, 130, 66}, options);
    for (const FusedMoeVariant& variant : variants_here()) {
      ThreadPool one(1), three(3);
      const Tensor all = run(variant, one, layer);
      expect_same_bits(run(variant, three, layer), all, "three threads");
      for (const int64_t batch : {1, 7, 33}) {
        for (int64_t first = 0; first + batch <= 90; first += 29) {
          expect_same_bits(run(variant, three, layer, first, batch),
                           all.narrow(0, first, batch),
                           std::string(variant.name) + " batch of " + std::to_string(batch));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// More choices than are taken at a time.
TEST(FusedMoe, ManyTokensInTurns) {
  ThreadPool pool(2);
  const Layer layer({2100, 4, 8, 16, 8}, {.dtype = DType::kBFloat16});
  for (const FusedMoeVariant& variant : variants_here()) {
    const Tensor y = run(variant, pool, layer);
    expect_same_bits(run(variant, pool, layer, 2030, 70), y.narrow(0, 2030, 70), variant.name);
    expect_matches(expected_of(layer), y, variant.name);
  }
}

TEST(FusedMoe, NotANumberStaysInItsTokenAndExpert) {
  ThreadPool pool(2);
  for (const GatedActivation& activation : kActivations) {
    Layer layer({6, 2, 4, 32, 20}, {.activation = activation});
    layer.x.data<float>()[3 * layer.x.stride(0) + 5] = NAN;
    for (const FusedMoeVariant& variant : variants_here()) {
      const Tensor y = run(variant, pool, layer);
      for (int64_t t = 0; t < 6; ++t) {
        for (const double value : values_of(y.narrow(0, t, 1))) {
          ASSERT_EQ(std::isnan(value), t == 3) << variant.name << " token " << t;
        }
      }
    }
  }
}

TEST(FusedMoe, PublicCallRunsAndTakesNoTokens) {
  ThreadPool pool(2);
  const Layer layer({5, 2, 4, 64, 32}, {.dtype = DType::kBFloat16});
  const Tensor y = Tensor::zeros({5, 64}, DType::kBFloat16);
  Workspace scratch(1 << 20);
  fused_moe(Stream(&pool), layer.x, layer.ids, layer.weights, layer.experts(), {}, y, scratch);
  expect_matches(expected_of(layer), y, "public");
  fused_moe(Stream(&pool),
            layer.x.narrow(0, 0, 0),
            layer.ids.narrow(0, 0, 0),
            layer.weights.narrow(0, 0, 0),
            layer.experts(),
            {},
            y.narrow(0, 0, 0),
            scratch);
}

TEST(FusedMoeDeathTest, RefusesExpertsOfAnotherSize) {
  Layer layer({5, 2, 4, 64, 32}, {});
  layer.down[2] = linear_weight_meta(64, 48, DType::kFloat32);
  const Tensor y = Tensor::zeros({5, 64}, DType::kFloat32);
  Workspace scratch;
  EXPECT_DEATH(
      fused_moe(
          Stream::dry_run(), layer.x, layer.ids, layer.weights, layer.experts(), {}, y, scratch),
      "does not hold");
}

TEST(FusedMoeDeathTest, RefusesGroupsThatAreNotThoseOfTheWeights) {
  const Layer layer({5, 2, 4, 256, 128},
                    {.format = QuantFormat{QuantDType::kFloat8E4M3, QuantType::kPerToken, 1},
                     .input = {QuantType::kPer1x128, DType::kFloat8E4M3}});
  const Tensor y = Tensor::zeros({5, 256}, DType::kFloat32);
  Workspace scratch;
  EXPECT_DEATH(
      fused_moe(
          Stream::dry_run(), layer.x, layer.ids, layer.weights, layer.experts(), {}, y, scratch),
      "scales_meet");
}

}  // namespace
}  // namespace atom::ops
