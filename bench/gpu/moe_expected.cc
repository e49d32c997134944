// What a layer's experts give, in double.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "moe_case.h"
#include "ops/fused_moe/expert_image_format.h"

namespace atom::bench {
namespace {

using namespace ops;

double activated(const GatedActivation& activation, double gate, double up) {
  if (activation.kind == GatedActivationKind::kSilu) return gate / (1 + std::exp(-gate)) * up;
  const double limit = activation.limit;
  gate = std::min(gate, limit);
  up = std::clamp(up, -limit, limit);
  return (up + 1) * gate / (1 + std::exp(-activation.alpha * gate));
}

double float4_value(int code) {
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return (code & 8) != 0 ? -kMagnitudes[code & 7] : kMagnitudes[code & 7];
}

// The values of every code, because matrices have many.
class ElementValues {
 public:
  explicit ElementValues(ExpertFormat format)
      : bits_(bits_of(format)), has_images_(format == ExpertFormat::kFloat4Images) {
    const Element element =
        format == ExpertFormat::kFloat8 ? Element::kFloat8E4M3 : Element::kBFloat16;
    for (int code = 0; code < 1 << bits_; ++code) {
      const auto bits = static_cast<uint16_t>(code);
      values_.push_back(format == ExpertFormat::kInt8   ? static_cast<int8_t>(code)
                        : format == ExpertFormat::kInt4 ? code - 8
                        : is_float4(format)             ? float4_value(code)
                                                        : element_value(element, &bits, 0));
    }
  }
  double at(const uint8_t* data, int64_t index) const {
    if (bits_ == 16) return values_[reinterpret_cast<const uint16_t*>(data)[index]];
    if (bits_ == 8) return values_[data[index]];
    uint32_t codes = data[index / 2];
    if (has_images_) {
      uint32_t word = 0;
      std::memcpy(&word, data + index / 8 * 4, sizeof word);
      codes = row_codes(word) >> index / 2 % 4 * 8;
    }
    return values_[codes >> index % 2 * 4 & 15];
  }

 private:
  const int bits_;
  const bool has_images_;
  std::vector<double> values_;
};

// To the nearest value of E4M3.
double as_float8(double x) {
  if (x == 0) return 0;
  const int exponent = std::max(std::ilogb(x), -6);
  const double step = std::ldexp(1.0, exponent - 3);
  return std::clamp(std::nearbyint(x / step) * step, -448.0, 448.0);
}

// As codes by a scale of each 128, and back.
std::vector<double> as_codes(std::vector<double> x) {
  for (size_t first = 0; first < x.size(); first += kMoeCodeGroup) {
    const size_t end = std::min(first + kMoeCodeGroup, x.size());
    double largest = 0;
    for (size_t i = first; i < end; ++i) largest = std::max(largest, std::abs(x[i]));
    const double scale = static_cast<float>(largest) / 448.0f;
    for (size_t i = first; largest > 0 && i < end; ++i) {
      // Quotients are rounded to float32 first, as quantize() does: some become ties.
      x[i] = as_float8(static_cast<float>(x[i] / scale)) * scale;
    }
  }
  return x;
}

// Where an element of a matrix is, counted in elements.
int64_t element_at(ExpertFormat format, int64_t row, int64_t column, int64_t num_columns) {
  if (format != ExpertFormat::kFloat4Images) return row * num_columns + column;
  const int64_t image = image_index(row, column / kMoeGroup, num_columns);
  const int in_image =
      image_offset(static_cast<int>(row % kImageRows), static_cast<int>(column / kMoeGroup));
  return (image * kImageSize + in_image) * 2 + column % kMoeGroup;
}

template <typename T>
std::vector<T> download(const void* data, int64_t count) {
  std::vector<T> host(count);
  ATOM_BENCH_CHECK(
      ATOM_GPU(Memcpy)(host.data(), data, count * sizeof(T), ATOM_GPU(MemcpyDeviceToHost)));
  return host;
}

}  // namespace

std::vector<double> MoeLayers::multiply(const Matrix& matrix,
                                        int layer,
                                        int expert,
                                        const std::vector<double>& x,
                                        std::vector<double>& magnitudes) const {
  const int64_t index = int64_t{layer} * shape_.num_experts + expert;
  const auto data =
      download<uint8_t>(matrix.data->data(index * matrix.expert_size), matrix.expert_size);
  const ElementValues values(format_.format);
  const ExpertMatrices layout = matrices(matrix, 0);
  std::vector<float> scales;
  if (matrix.scales) {
    scales = download<float>(matrix.scales->data(index * matrix.num_scales * 4), matrix.num_scales);
  }
  std::vector<uint8_t> exponents;
  if (matrix.exponents) {
    exponents = download<uint8_t>(matrix.exponents->data(index * exponents_size(matrix)),
                                  exponents_size(matrix));
  }
  std::vector<uint16_t> bias;
  if (matrix.bias) {
    bias = download<uint16_t>(matrix.bias->data(index * matrix.rows * 2), matrix.rows);
  }
  std::vector<double> powers;
  for (int i = 0; i < 256; ++i) powers.push_back(std::ldexp(1.0, i - 127));
  std::vector<double> y;
  magnitudes.clear();
  for (int row = 0; row < matrix.rows; ++row) {
    double sum = 0, magnitude = 0;
    for (int k = 0; k < matrix.columns; ++k) {
      const int64_t element = element_at(format_.format, row, k, matrix.columns);
      double value = values.at(data.data(), element);
      if (!scales.empty()) {
        value *= scales[row / layout.scale_rows * layout.scales_across + k / layout.scale_columns];
      }
      if (!exponents.empty()) {
        value *= powers[exponents[(int64_t{row} * matrix.columns + k) / kMoeGroup]];
      }
      sum += value * x[k];
      magnitude += std::abs(value * x[k]);
    }
    if (!bias.empty()) sum += element_value(Element::kBFloat16, bias.data(), row);
    y.push_back(sum);
    magnitudes.push_back(magnitude + std::abs(sum));
  }
  return y;
}

MoeLayers::Expected MoeLayers::expected(int layer, int token, const Arithmetic& arithmetic) const {
  const bool codes = arithmetic.codes;
  const Buffer& rows = arithmetic.of_norm ? norm_rows_ : x_;
  const auto bits =
      download<uint16_t>(rows.data(int64_t{token} * shape_.hidden_size * 2), shape_.hidden_size);
  std::vector<double> x;
  for (int i = 0; i < shape_.hidden_size; ++i) {
    x.push_back(element_value(Element::kBFloat16, bits.data(), i));
  }
  if (codes) x = as_codes(x);
  std::vector<Expected> results(shape_.top_k);
  std::vector<std::thread> threads;
  for (int j = 0; j < shape_.top_k; ++j) {
    const int64_t choice = (int64_t{layer} * most_tokens_ + token) * shape_.top_k + j;
    threads.emplace_back(
        [&, j, choice] { results[j] = result_of(layer, host_ids_[choice], x, codes); });
  }
  for (std::thread& thread : threads) thread.join();
  // Roundings of the activated values are independent: their sum is a tenth of the worst. Of codes
  // some are the next ones, a sixteenth away, because sums differ.
  const double share = (codes ? 0.5 : 0.1) * 0x1p-8;
  const double share_of_result = arithmetic.rounds_results ? 0x1p-9 : 0;
  Expected expected{std::vector<double>(shape_.hidden_size, 0.0),
                    std::vector<double>(shape_.hidden_size, 1e-6)};
  for (int j = 0; j < shape_.top_k; ++j) {
    const double weight = host_weights_[(int64_t{layer} * most_tokens_ + token) * shape_.top_k + j];
    for (int i = 0; i < shape_.hidden_size; ++i) {
      expected.y[i] += weight * results[j].y[i];
      expected.allowed[i] += weight * results[j].allowed[i] * share;
      expected.allowed[i] += weight * std::abs(results[j].y[i]) * share_of_result;
    }
  }
  for (int i = 0; i < shape_.hidden_size; ++i) {
    expected.allowed[i] += 1.02 * 0x1p-8 * std::abs(expected.y[i]);
  }
  return expected;
}

MoeLayers::Expected MoeLayers::result_of(int layer,
                                         int expert,
                                         const std::vector<double>& x,
                                         bool codes) const {
  const int size = shape_.intermediate_size;
  Expected result;
  const auto gate_up = multiply(gate_up_, layer, expert, x, result.allowed);
  std::vector<double> a;
  for (int i = 0; i < size; ++i) {
    const bool interleaved = shape_.activation.is_interleaved;
    a.push_back(activated(shape_.activation,
                          gate_up[interleaved ? 2 * i : i],
                          gate_up[interleaved ? 2 * i + 1 : size + i]));
  }
  if (codes) a = as_codes(a);
  result.y = multiply(down_, layer, expert, a, result.allowed);
  return result;
}

std::vector<uint16_t> MoeLayers::result(int count) const {
  ATOM_BENCH_CHECK(ATOM_GPU(DeviceSynchronize)());
  return download<uint16_t>(y_.data(), int64_t{count} * shape_.hidden_size);
}

}  // namespace atom::bench
