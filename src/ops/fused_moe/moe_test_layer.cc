#include "ops/fused_moe/moe_test_layer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/float8.h"

namespace atom::ops::moe_test {
namespace {

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

}  // namespace

Layer::Layer(const Sizes& s, const Options& o) : sizes(s), options(o) {
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

void Layer::add_weight(int64_t rows,
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

void Layer::choose() {
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

}  // namespace atom::ops::moe_test
