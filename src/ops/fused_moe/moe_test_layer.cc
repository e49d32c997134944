#include "ops/fused_moe/moe_test_layer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/quantize/quantize.h"
#include "ops/quantize/quantize_in_double.h"
#include "tensor/float4.h"
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

float value_of(QuantDType dtype, const uint8_t* row, int64_t k) {
  const auto nibble = static_cast<uint8_t>(row[k / 2] >> k % 2 * 4 & 15);
  switch (dtype) {
    case QuantDType::kFloat8E4M3:
      return to_float(Float8E4M3{row[k]});
    case QuantDType::kInt8:
      return static_cast<float>(static_cast<int8_t>(row[k]));
    case QuantDType::kFloat4E2M1:
      return float4_to_float(nibble);
    case QuantDType::kInt4:
      return static_cast<float>(nibble) - 8;
  }
  return NAN;
}

float largest_of(QuantDType dtype) {
  switch (dtype) {
    case QuantDType::kFloat8E4M3:
      return 448;
    case QuantDType::kInt8:
      return 128;
    case QuantDType::kFloat4E2M1:
      return 6;
    case QuantDType::kInt4:
      return 8;
  }
  return NAN;
}

// Random codes, of which none is NaN, with scales that keep values within `bound`.
StoredRows quantized_rows(
    int64_t rows, int64_t columns, const QuantFormat& format, float bound, uint64_t seed) {
  const bool four_bits =
      format.dtype == QuantDType::kFloat4E2M1 || format.dtype == QuantDType::kInt4;
  const DType dtype = format.dtype == QuantDType::kFloat8E4M3 ? DType::kFloat8E4M3
                      : format.dtype == QuantDType::kInt8     ? DType::kInt8
                                                              : DType::kUInt8;
  StoredRows stored;
  stored.data = Tensor::zeros({rows, four_bits ? columns / 2 : columns}, dtype);
  auto* bytes = static_cast<uint8_t*>(stored.data.raw_data());
  uint64_t state = seed;
  for (int64_t i = 0; i < stored.data.num_elements(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    bytes[i] = static_cast<uint8_t>(state >> 56);
    if (dtype == DType::kFloat8E4M3 && (bytes[i] & 0x7f) == 0x7f) bytes[i] = 0x31;
  }
  const int64_t group = format.group_size() == 0 ? columns : format.group_size();
  const int64_t across = (columns + group - 1) / group;
  const int64_t scale_rows = (rows + format.scale_rows - 1) / format.scale_rows;
  const float most = bound / largest_of(format.dtype);
  Tensor scales = random_tensor({scale_rows, across}, DType::kFloat32, seed + 1, most);
  stored.scales = scales;
  if (format.scale_dtype() == DType::kUInt8) {
    stored.scales = Tensor::zeros({scale_rows, across}, DType::kUInt8);
    for (int64_t i = 0; i < scales.num_elements(); ++i) {
      const auto exponent = static_cast<uint8_t>(127 + std::ilogb(most) - i % 3);
      stored.scales.data<uint8_t>()[i] = exponent;
      scales.data<float>()[i] = e8m0_to_float(exponent);
    }
  }
  stored.values = Tensor::zeros({rows, columns}, DType::kFloat32);
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int64_t row = i / columns, k = i % columns;
    stored.values.data<float>()[i] =
        value_of(format.dtype, bytes + row * stored.data.size(1), k) *
        scales.data<float>()[row / format.scale_rows * across + k / group];
  }
  if (format.group_size() == 0) stored.scales = stored.scales.view({rows});
  return stored;
}

// MXFP4 of other exponents: of a row up to 22 powers of two apart, and the largest ones of zeros.
void spread_exponents(StoredRows& stored) {
  constexpr int64_t kColumns = 32;
  uint8_t* const exponents = stored.scales.data<uint8_t>();
  auto* const bytes = static_cast<uint8_t*>(stored.data.raw_data());
  for (int64_t block = 0; block < stored.scales.num_elements(); ++block) {
    const bool is_zero = block % 7 == 3;
    const int exponent = exponents[block] + (is_zero ? 40 : -static_cast<int>(block % 23));
    const double factor = std::exp2(exponent - exponents[block]);
    exponents[block] = static_cast<uint8_t>(exponent);
    float* const values = stored.values.data<float>() + block * kColumns;
    for (int64_t i = 0; i < kColumns; ++i) {
      values[i] = is_zero ? 0 : static_cast<float>(values[i] * factor);
      if (is_zero) bytes[(block * kColumns + i) / 2] = i % 4 == 0 ? 0x88 : 0;
    }
  }
}

// What a matrix multiplies, quantized or not, and where float32 may have another code.
// `errors` are those of x, which may be empty.
RowInDouble input_of(const CodeFormat& format,
                     const std::vector<double>& x,
                     double noise = 1e-5,
                     const std::vector<double>& errors = {}) {
  if (!format.is_quantized()) return {x, std::vector<double>(x.size(), 0.0), {}};
  const QuantDType dtype = format.dtype == DType::kInt8    ? QuantDType::kInt8
                           : format.dtype == DType::kUInt8 ? QuantDType::kFloat4E2M1
                                                           : QuantDType::kFloat8E4M3;
  return quantize_in_double(x, format.granularity, dtype, 0, noise, errors);
}

// matrix * x + bias, and the sum of the products' magnitudes. `doubt`: what other codes would add.
// `cut`: how much sums may lose of products of codes in FP8, of which the matrix units add as many
// at a time as kAtOnce and cut each off at kKept of the largest.
struct Product {
  std::vector<double> values, magnitudes, doubt, cut;
  static constexpr int64_t kAtOnce = 32;
  static constexpr double kKept = 0x1p-13;
};
Product multiply(const Tensor& matrix, const RowInDouble& x, const Tensor& biases, int64_t expert) {
  Product product;
  const int64_t columns = matrix.size(1);
  const std::vector<double> bias =
      biases.defined() ? values_of(expert_bias(biases, expert)) : std::vector<double>();
  for (int64_t n = 0; n < matrix.size(0); ++n) {
    double sum = 0, magnitude = 0, doubt = 0, cut = 0, largest = 0;
    for (int64_t k = 0; k < columns; ++k) {
      const double weight = matrix.data<float>()[n * columns + k];
      sum += weight * x.values[k];
      magnitude += std::abs(weight * x.values[k]);
      doubt += std::abs(weight * x.doubt[k]);
      largest = std::max(largest, std::abs(weight * x.values[k]));
      if ((k + 1) % Product::kAtOnce != 0 && k + 1 < columns) continue;
      cut += Product::kAtOnce * Product::kKept * largest;
      largest = 0;
    }
    product.doubt.push_back(doubt);
    product.cut.push_back(cut);
    if (!bias.empty()) sum += bias[n];
    product.values.push_back(sum);
    product.magnitudes.push_back(magnitude + std::abs(sum));
  }
  return product;
}

// How far the activation of a gate and an up may be from its value when these are by so much from
// theirs.
double activated_error(
    const GatedActivation& activation, double gate, double up, double gate_error, double up_error) {
  const double value = activated(activation, gate, up);
  double error = 0;
  for (const double by_gate : {-gate_error, gate_error}) {
    for (const double by_up : {-up_error, up_error}) {
      error = std::max(error, std::abs(activated(activation, gate + by_gate, up + by_up) - value));
    }
  }
  return error;
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

void Layer::code_x() {
  ThreadPool pool(1);
  Workspace scratch(1 << 24);
  const QuantizedRows made =
      ops::quantized_rows(options.input, sizes.num_tokens, sizes.hidden_size, scratch);
  quantize(Stream(&pool), x, made);
  x_codes = made;
  x_codes.values = Tensor::zeros(made.values.shape(), made.values.dtype());
  x_codes.scales = Tensor::zeros(made.scales.shape(), made.scales.dtype());
  std::memcpy(x_codes.values.raw_data(), made.values.raw_data(), made.values.num_bytes());
  std::memcpy(x_codes.scales.raw_data(), made.scales.raw_data(), made.scales.num_bytes());
}

void Layer::add_weight(int64_t rows,
                       int64_t columns,
                       uint64_t seed,
                       std::vector<LinearWeight>& packed,
                       std::vector<StoredRows>& stored) {
  ThreadPool pool(1);
  const Stream stream(&pool);
  const float scale = 2.0f / std::sqrt(static_cast<float>(columns));
  if (options.format) {
    stored.push_back(quantized_rows(rows, columns, *options.format, scale, seed));
    if (options.has_far_exponents) spread_exponents(stored.back());
    packed.push_back(make_quantized_weight(rows, columns, *options.format));
    pack_rows(stream, stored.back().data, 0, packed.back());
    pack_scales(stored.back().scales, 0, packed.back());
    return;
  }
  const Tensor data = random_tensor({rows, columns}, options.dtype, seed, scale);
  const Tensor values = Tensor::zeros({rows, columns}, DType::kFloat32);
  copy_convert(data, values);
  stored.push_back({data, {}, values});
  packed.push_back(pack_linear_weight(stream, data));
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
    const RowInDouble x = input_of(layer.options.input, values_of(layer.x.narrow(0, t, 1)));
    const Product gate_up =
        multiply(layer.gate_up_rows[expert].values, x, layer.gate_up_bias, expert);
    // Another code of x may lead to another one of what is between, as may what sums lose.
    const bool cuts = layer.options.cuts;
    const auto error_of = [&](int64_t n) { return gate_up.doubt[n] + (cuts ? gate_up.cut[n] : 0); };
    std::vector<double> a, errors;
    for (int64_t i = 0; i < s.intermediate_size; ++i) {
      const int64_t gate = interleaved ? 2 * i : i;
      const int64_t up = interleaved ? 2 * i + 1 : s.intermediate_size + i;
      const double gate_value = gate_up.values[gate], up_value = gate_up.values[up];
      a.push_back(activated(layer.options.activation, gate_value, up_value));
      errors.push_back(activated_error(
          layer.options.activation, gate_value, up_value, error_of(gate), error_of(up)));
    }
    const Product result = multiply(layer.down_rows[expert].values,
                                    input_of(layer.options.input, a, layer.options.doubt, errors),
                                    layer.down_bias,
                                    expert);
    const double weight = layer.weights.data<float>()[choice];
    for (int64_t i = 0; i < s.hidden_size; ++i) {
      expected.y[t * s.hidden_size + i] += weight * result.values[i];
      expected.allowed[t * s.hidden_size + i] +=
          std::abs(weight) * (result.magnitudes[i] * (1.02 * rounding + 2e-5) + result.doubt[i]);
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
