#include "ops/fused_moe/fused_moe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "ops/fused_moe/fused_moe_variants.h"
#include "ops/test_tensors.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

using Kind = GatedActivationKind;

struct Sizes {
  int64_t num_tokens, top_k, num_experts, hidden_size, intermediate_size;
};

struct Options {
  DType dtype = DType::kFloat32;
  std::optional<DType> weight_dtype = {};  // else dtype
  std::optional<DType> y_dtype = {};       // else dtype
  GatedActivation activation = {};
  bool has_bias = false;
  // Of the ids the experts with an odd one are elsewhere; then some ids are no expert's.
  bool is_part = false;
  uint64_t seed = 1;
};

// A layer's experts and one call of them, with what they were made from.
struct Layer {
  Sizes sizes;
  Options options;
  std::vector<LinearWeight> gate_up, down;
  std::vector<Tensor> gate_up_rows, down_rows;  // float32, as multiplied
  Tensor gate_up_bias, down_bias, places;
  Tensor x, ids, weights;

  Layer(const Sizes& s, const Options& o) : sizes(s), options(o) {
    for (int64_t e = 0; e < s.num_experts; ++e) {
      add_weight(2 * s.intermediate_size, s.hidden_size, 10 * e + 3, gate_up, gate_up_rows);
      add_weight(s.hidden_size, s.intermediate_size, 10 * e + 4, down, down_rows);
    }
    if (o.has_bias) {
      const DType bias_dtype = o.seed % 2 == 0 ? o.dtype : DType::kFloat32;
      gate_up_bias = random_tensor({s.num_experts, 2 * s.intermediate_size}, bias_dtype, 5);
      down_bias = random_tensor({s.num_experts, s.hidden_size}, bias_dtype, 6);
    }
    // A view whose rows are further apart than they must be.
    x = random_tensor({s.num_tokens, s.hidden_size + 8}, o.dtype, o.seed + 7)
            .narrow(1, 0, s.hidden_size);
    choose();
  }

  ExpertWeights experts() const { return {gate_up, down, gate_up_bias, down_bias, places}; }

 private:
  void add_weight(int64_t rows,
                  int64_t columns,
                  uint64_t seed,
                  std::vector<LinearWeight>& packed,
                  std::vector<Tensor>& values) {
    ThreadPool pool(1);
    const float scale = 2.0f / std::sqrt(static_cast<float>(columns));
    const Tensor source = random_tensor({rows, columns}, DType::kFloat32, seed, scale);
    const DType dtype = options.weight_dtype.value_or(options.dtype);
    const Tensor stored = Tensor::zeros({rows, columns}, dtype);
    const Tensor read = Tensor::zeros({rows, columns}, DType::kFloat32);
    Tensor scales;
    if (dtype == DType::kFloat8E4M3) {
      scales = random_tensor({rows}, DType::kFloat32, seed + 1, 1.0f / 32);
      auto* codes = static_cast<uint8_t*>(stored.raw_data());
      for (int64_t i = 0; i < stored.num_elements(); ++i) {
        const auto code = from_float<Float8E4M3>(source.data<float>()[i] * 64);
        std::memcpy(codes + i, &code, 1);
        read.data<float>()[i] = to_float(code) * scales.data<float>()[i / columns];
      }
    } else {
      copy_convert(source, stored);
      copy_convert(stored, read);
    }
    packed.push_back(pack_linear_weight(Stream(&pool), stored));
    packed.back().scales = scales;
    values.push_back(read);
  }

  void choose() {
    const int64_t num_ids = sizes.num_experts * (options.is_part ? 2 : 1);
    if (options.is_part) {
      places = Tensor::zeros({num_ids}, DType::kInt32);
      for (int32_t id = 0; id < num_ids; ++id) {
        places.data<int32_t>()[id] = id % 2 == 0 ? id / 2 : -1;
      }
    }
    ids = Tensor::zeros({sizes.num_tokens, sizes.top_k}, DType::kInt32);
    weights = random_tensor({sizes.num_tokens, sizes.top_k}, DType::kFloat32, options.seed + 8);
    uint64_t state = options.seed;
    for (int64_t t = 0; t < sizes.num_tokens; ++t) {
      int32_t* row = ids.data<int32_t>() + t * sizes.top_k;
      for (int64_t j = 0; j < sizes.top_k; ++j) {
        do {
          state = state * 6364136223846793005u + 1442695040888963407u;
          row[j] = static_cast<int32_t>((state >> 33) % num_ids);
        } while (std::find(row, row + j, row[j]) != row + j);
      }
      if (options.is_part && t % 3 == 1) row[0] = -1;
      if (options.is_part && t % 3 == 2) row[0] = static_cast<int32_t>(num_ids + 5);
    }
  }
};

double activated(const GatedActivation& activation, double gate, double up) {
  switch (activation.kind) {
    case Kind::kSilu:
      return gate / (1 + std::exp(-gate)) * up;
    case Kind::kGelu:
      return gate * 0.5 * std::erfc(-gate / std::sqrt(2.0)) * up;
    case Kind::kGeluTanh:
      return gate /
             (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate))) * up;
    case Kind::kClampedSwiGlu:
      gate = std::min(gate, double{activation.limit});
      up = std::clamp(up, -double{activation.limit}, double{activation.limit});
      return (up + 1) * gate / (1 + std::exp(-activation.alpha * gate));
  }
  return NAN;
}

// matrix * x + bias, and the sum of the products' magnitudes.
struct Product {
  std::vector<double> values, magnitudes;
};
Product multiply(const Tensor& matrix,
                 const std::vector<double>& x,
                 const Tensor& biases,
                 int64_t expert) {
  Product product;
  const int64_t columns = matrix.size(1);
  const std::vector<double> bias =
      biases.defined() ? values_of(expert_bias(biases, expert)) : std::vector<double>();
  for (int64_t n = 0; n < matrix.size(0); ++n) {
    double sum = 0, magnitude = 0;
    for (int64_t k = 0; k < columns; ++k) {
      const double term = double{matrix.data<float>()[n * columns + k]} * x[k];
      sum += term;
      magnitude += std::abs(term);
    }
    if (!bias.empty()) sum += bias[n];
    product.values.push_back(sum);
    product.magnitudes.push_back(magnitude + std::abs(sum));
  }
  return product;
}

// y in double, and how far from it one rounding of what the activation gives and the errors of
// float32 sums may lead.
struct Expected {
  std::vector<double> y, allowed;
};

Expected expected_of(const Layer& layer) {
  const Sizes& s = layer.sizes;
  const double rounding = half_ulp(layer.options.dtype);
  const bool interleaved = layer.options.activation.is_interleaved;
  Expected expected{std::vector<double>(s.num_tokens * s.hidden_size, 0.0),
                    std::vector<double>(s.num_tokens * s.hidden_size, 1e-6)};
  for (int64_t choice = 0; choice < s.num_tokens * s.top_k; ++choice) {
    int64_t expert = layer.ids.data<int32_t>()[choice];
    if (layer.options.is_part) {
      if (expert < 0 || expert >= 2 * s.num_experts || expert % 2 != 0) continue;
      expert /= 2;
    }
    const int64_t t = choice / s.top_k;
    const std::vector<double> x = values_of(layer.x.narrow(0, t, 1));
    const Product gate_up = multiply(layer.gate_up_rows[expert], x, layer.gate_up_bias, expert);
    std::vector<double> a;
    for (int64_t i = 0; i < s.intermediate_size; ++i) {
      const int64_t gate = interleaved ? 2 * i : i;
      const int64_t up = interleaved ? 2 * i + 1 : s.intermediate_size + i;
      a.push_back(activated(layer.options.activation, gate_up.values[gate], gate_up.values[up]));
    }
    const Product result = multiply(layer.down_rows[expert], a, layer.down_bias, expert);
    const double weight = layer.weights.data<float>()[choice];
    for (int64_t i = 0; i < s.hidden_size; ++i) {
      expected.y[t * s.hidden_size + i] += weight * result.values[i];
      expected.allowed[t * s.hidden_size + i] +=
          std::abs(weight) * result.magnitudes[i] * (1.02 * rounding + 2e-5);
    }
  }
  return expected;
}

void expect_matches(const Expected& expected, const Tensor& y, const std::string& what) {
  const std::vector<double> got = values_of(y);
  ASSERT_EQ(got.size(), expected.y.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double rounding = 1.02 * half_ulp(y.dtype()) * std::abs(expected.y[i]);
    ASSERT_NEAR(got[i], expected.y[i], expected.allowed[i] + rounding) << what << " element " << i;
  }
}

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
  const FusedMoeCall call{x, ids, weights, experts, layer.options.activation, y};
  Workspace measure;
  variant.launch(Stream::dry_run(), call, measure);
  Workspace scratch(measure.peak_size());
  variant.launch(Stream(&pool), call, scratch);
  return y;
}

Tensor run(const FusedMoeVariant& variant, ThreadPool& pool, const Layer& layer) {
  return run(variant, pool, layer, 0, layer.sizes.num_tokens);
}

constexpr Sizes kSizes[] = {
    {1, 2, 8, 64, 32},
    {1, 1, 1, 1, 1},
    {3, 4, 5, 33, 17},
    {40, 2, 4, 96, 70},
    {30, 8, 16, 130, 64},
};

const GatedActivation kActivations[] = {{Kind::kSilu, false},
                                        {Kind::kSilu, true},
                                        {Kind::kGelu, false},
                                        {Kind::kGeluTanh, true},
                                        {Kind::kClampedSwiGlu, true, 1.702f, 0.7f},
                                        {Kind::kClampedSwiGlu, false, 1.3f, 2.0f}};

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

TEST(FusedMoe, WeightsInFloat8) {
  ThreadPool pool(2);
  for (const DType dtype : kFloatDTypes) {
    const Layer layer({9, 3, 6, 80, 48}, {.dtype = dtype, .weight_dtype = DType::kFloat8E4M3});
    for (const FusedMoeVariant& variant : variants_here()) {
      expect_matches(expected_of(layer), run(variant, pool, layer), variant.name);
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

}  // namespace
}  // namespace atom::ops
