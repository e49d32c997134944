#include "linear_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace atom::bench {
namespace {

using namespace ops;
constexpr Element kF8 = Element::kFloat8E4M3, kF32 = Element::kFloat32;
constexpr int64_t kRowsBehind = 64;

// A residual that is exact in every type.
double residual_at(int64_t index) {
  return static_cast<double>(index % 17) * 0.25 - 2.0;
}

// A sum of products in double and what its rounding may be off.
struct ExactSum {
  double value = 0, bound = 0;
};

ExactSum sum_products(const float* a, const float* b, size_t size, bool float8) {
  // Tensor cores cut FP8 products off 13 bits below the largest.
  const double of_largest = float8 ? 0x1p-13 * std::sqrt(size) : 0;
  double value = 0, magnitude = 0, largest = 0;
  for (size_t i = 0; i < size; ++i) {
    const double product = static_cast<double>(a[i]) * b[i];
    value += product;
    magnitude += std::fabs(product);
    largest = std::max(largest, std::fabs(product));
  }
  return {value, magnitude * 4e-6 + of_largest * largest};
}

// The same, with factors of both sides for every 128 products. Tensor cores add these up alone, 32
// at a time: what they have so far counts where they cut off.
ExactSum sum_groups(const std::vector<float>& a,
                    const std::vector<float>& b,
                    const float* a_scales,
                    const float* b_scales) {
  ExactSum sum;
  for (size_t begin = 0; begin < a.size(); begin += kLinearGroupSize) {
    const size_t size = std::min<size_t>(kLinearGroupSize, a.size() - begin);
    const size_t group = begin / kLinearGroupSize;
    const double scale = static_cast<double>(a_scales[group]) * b_scales[group];
    constexpr size_t kStep = 32;
    const double of_sum = 0x1p-13 * std::sqrt(size);
    ExactSum part;
    for (size_t i = 0; i < size; i += kStep) {
      const size_t count = std::min(kStep, size - i);
      const ExactSum step = sum_products(&a[begin + i], &b[begin + i], count, true);
      part.bound = std::max(part.bound, of_sum * std::fabs(part.value));
      part.bound = std::max(part.bound, of_sum / (0x1p-13 * std::sqrt(count)) * step.bound);
      part.value += step.value;
    }
    sum.value += part.value * scale;
    sum.bound += part.bound * scale;
  }
  return sum;
}

template <typename Bits>
bool all_finite(const std::vector<uint8_t>& data, int64_t count, Bits exponent) {
  const auto* values = reinterpret_cast<const Bits*>(data.data());
  int64_t num_others = 0;
  for (int64_t i = 0; i < count; ++i) num_others += (values[i] & exponent) == exponent ? 1 : 0;
  return num_others == 0;
}

bool all_finite(Element element, const std::vector<uint8_t>& data, int64_t count) {
  if (element == kF32) return all_finite<uint32_t>(data, count, 0x7f800000);
  return all_finite<uint16_t>(data, count, element == Element::kFloat16 ? 0x7c00 : 0x7f80);
}

std::vector<float> row_of(Element element,
                          const std::vector<uint8_t>& data,
                          int64_t row,
                          int64_t k) {
  std::vector<float> values(k);
  for (int64_t i = 0; i < k; ++i) {
    values[i] = static_cast<float>(element_value(element, data.data(), row * k + i));
  }
  return values;
}

}  // namespace

LinearOperands::LinearOperands(const LinearCase& c,
                               int64_t out_features,
                               int64_t in_features,
                               int64_t rows)
    : case_(c),
      n_(out_features),
      k_(in_features),
      rows_(rows),
      width_(c.epilogue == LinearEpilogue::kSiluAndMul ? n_ / 2 : n_),
      weight_((n_ + kRowsBehind) * k_ * bytes_of(c.weight)),
      x_((rows + kRowsBehind) * k_ * bytes_of(c.x)),
      bias_(n_ * 4),
      weight_scale_((c.scale_rows > 0 ? (n_ + c.scale_rows - 1) / c.scale_rows : n_) *
                    num_groups() * 4),
      x_scale_(rows * num_groups() * 4),
      y_(rows * n_ * 4),
      residual_(rows * n_ * 2) {
  weight_.fill_bytes(0xff);
  x_.fill_bytes(0xff);
  fill_random(weight_.data(), c.weight, n_ * k_, c.weight == kF8 ? 448.0f : 1.0f, 11 + n_);
  fill_random(x_.data(), c.x, rows * k_, c.x == kF8 ? 448.0f : 1.0f, 12 + k_);
  fill_random(bias_.data(), kF32, n_, 1.0f, 13);
  std::vector<float> scale(weight_scale_.size() / 4), row_scale(x_scale_.size() / 4);
  for (size_t i = 0; i < scale.size(); ++i) scale[i] = (1.0f + 0.01f * (i % 37)) / 448;
  for (size_t i = 0; i < row_scale.size(); ++i) row_scale[i] = (1.0f + 0.1f * (i % 7)) / 448;
  weight_scale_.upload(scale);
  x_scale_.upload(row_scale);
  if (c.epilogue != LinearEpilogue::kAddResidual) return;
  std::vector<uint16_t> residual(rows_ * n_);
  for (size_t i = 0; i < residual.size(); ++i) {
    const auto value = static_cast<float>(residual_at(static_cast<int64_t>(i)));
    const gpu_bfloat16 as_bf16 = __float2bfloat16_rn(value);
    const __half as_half = __float2half_rn(value);
    const bool is_bf16 = c.y == Element::kBFloat16;
    std::memcpy(&residual[i], is_bf16 ? static_cast<const void*>(&as_bf16) : &as_half, 2);
  }
  residual_.upload(residual);
}

// Scales of a row.
int64_t LinearOperands::num_groups() const {
  return case_.scale_rows > 0 ? (k_ + kLinearGroupSize - 1) / kLinearGroupSize : 1;
}

LinearGpuCall LinearOperands::params(int64_t first_row, int64_t num_rows) const {
  const LinearCase& c = case_;
  LinearGpuCall p;
  p.x = x_.data(first_row * k_ * bytes_of(c.x));
  p.weight = weight_.data();
  if (c.weight == kF8) p.weight_scale = weight_scale_.data<float>();
  const bool has_row_scales = c.scale_per_row || c.scale_rows > 0;
  if (c.x == kF8)
    p.x_scale = x_scale_.data<float>(has_row_scales ? first_row * num_groups() * 4 : 0);
  if (c.scale_rows > 0) {
    p.group_size = kLinearGroupSize;
    p.scale_rows = c.scale_rows;
  }
  p.weight_scale_per_row = p.x_scale_per_row = c.scale_per_row;
  if (c.bias) p.bias = bias_.data();
  p.bias_element = kF32;
  p.y = y_.data(first_row * row_size());
  p.x_stride = k_;
  p.y_stride = width_;
  p.num_rows = static_cast<int32_t>(num_rows);
  p.out_features = static_cast<int32_t>(n_);
  p.in_features = static_cast<int32_t>(k_);
  p.weight_element = c.weight;
  p.x_element = c.x;
  p.y_element = c.y;
  p.epilogue = c.epilogue;
  return p;
}

void LinearOperands::reset() {
  y_.fill_bytes(0xff);  // NaN in every type
  if (case_.epilogue != LinearEpilogue::kAddResidual) return;
  ATOM_BENCH_CHECK(ATOM_GPU(Memcpy)(
      y_.data(), residual_.data(), residual_.size(), ATOM_GPU(MemcpyDeviceToDevice)));
}

void LinearOperands::compute_expected() {
  constexpr int64_t kFeatures = 14, kRows = 9;  // of large cases
  const LinearCase& c = case_;
  const auto weight = weight_.download<uint8_t>(), x = x_.download<uint8_t>();
  const auto bias = bias_.download<float>(), weight_scale = weight_scale_.download<float>(),
             x_scale = x_scale_.download<float>();
  // What one rounding may be off, relative.
  const double unit = c.y == kF32 ? 0x1p-24 : c.y == Element::kFloat16 ? 0x1p-11 : 0x1p-8;
  const bool large = n_ * k_ > (1 << 19);
  const int64_t num_features = large ? std::min(width_, kFeatures) : width_;
  const int64_t num_rows = large ? std::min(rows_, kRows) : rows_;
  std::vector<std::vector<float>> x_rows;
  for (int64_t r = 0; r < num_rows; ++r)
    x_rows.push_back(row_of(c.x, x, r * (rows_ - 1) / std::max<int64_t>(num_rows - 1, 1), k_));
  for (int64_t f = 0; f < num_features; ++f) {
    const int64_t feature = num_features == width_ ? f : (f * 7919 + width_ - 1) % width_;
    const std::vector<float> w = row_of(c.weight, weight, feature, k_);
    std::vector<float> up;
    if (c.epilogue == LinearEpilogue::kSiluAndMul)
      up = row_of(c.weight, weight, n_ / 2 + feature, k_);
    for (int64_t r = 0; r < num_rows; ++r) {
      const int64_t row = r * (rows_ - 1) / std::max<int64_t>(num_rows - 1, 1);
      const auto sum_of = [&](const std::vector<float>& values, int64_t of_feature) {
        if (c.scale_rows > 0) {
          const ExactSum sum = sum_groups(values,
                                          x_rows[r],
                                          &weight_scale[of_feature / c.scale_rows * num_groups()],
                                          &x_scale[row * num_groups()]);
          return ExactSum{sum.value + (c.bias ? bias[of_feature] : 0.0f), sum.bound + 1e-30};
        }
        const ExactSum sum = sum_products(values.data(), x_rows[r].data(), k_, c.x == kF8);
        double scale = 1;
        if (c.weight == kF8) scale *= weight_scale[c.scale_per_row ? of_feature : 0];
        if (c.x == kF8) scale *= x_scale[c.scale_per_row ? row : 0];
        return ExactSum{sum.value * scale + (c.bias ? bias[of_feature] : 0.0f),
                        sum.bound * scale + 1e-30};
      };
      const ExactSum sum = sum_of(w, feature);
      double expected = sum.value, allowed = 0;
      if (c.epilogue == LinearEpilogue::kSiluAndMul) {
        const ExactSum up_sum = sum_of(up, n_ / 2 + feature);
        const double silu = expected / (1 + std::exp(-expected));
        allowed = unit * std::fabs(silu * up_sum.value) * 3 +
                  (sum.bound + unit * std::fabs(expected)) * 1.2 * std::fabs(up_sum.value) +
                  up_sum.bound * std::fabs(silu) + 1e-6;
        expected = silu * up_sum.value;
      } else if (c.epilogue == LinearEpilogue::kAddResidual) {
        const double residual = residual_at(row * n_ + feature);
        allowed = unit * (std::fabs(expected) + std::fabs(expected + residual)) + sum.bound;
        expected += residual;
      } else {
        allowed = 1.001 * unit * std::fabs(expected) + sum.bound;
      }
      expected_.push_back({row * width_ + feature, expected, allowed});
    }
  }
}

double LinearOperands::error(const std::vector<uint8_t>& result) {
  if (expected_.empty()) compute_expected();
  double worst = 0;
  for (const Expected& e : expected_) {
    const double got = element_value(case_.y, result.data(), e.index);
    const double error = std::fabs(got - e.value) / e.allowed;
    if (!(error <= worst)) worst = error;
    if (!(error == error)) return 1e9;
  }
  return all_finite(case_.y, result, rows_ * width_) ? worst : 1e8;
}

}  // namespace atom::bench
