// For tests: quantization of a row in double, by the formulas of quantize.h and nothing of its
// code. Where float32 may have rounded to the neighboring code, it says so.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/check.h"
#include "tensor/quant_type.h"

namespace atom::ops {

// To nearest, ties to even, limited to what the format holds.
inline double nearest_code(QuantDType dtype, double value) {
  const double magnitude = std::abs(value);
  double limit = 127, step = 1;
  if (dtype == QuantDType::kFloat8E4M3) {
    limit = 448;
    step = std::ldexp(1.0, std::max(magnitude > 0 ? std::ilogb(magnitude) : -6, -6) - 3);
  } else if (dtype == QuantDType::kFloat4E2M1) {
    limit = 6;
    step = magnitude < 2 ? 0.5 : magnitude < 4 ? 1 : 2;
  } else {
    CHECK(dtype == QuantDType::kInt8);
  }
  return std::copysign(std::min(std::nearbyint(magnitude / step) * step, limit), value);
}

struct RowInDouble {
  std::vector<double> values;  // codes times scales
  std::vector<double> doubt;   // what another rounding would add; 0 where there is none
  std::vector<double> scales;
};

// `noise`: by how much a value may be another in float32, relative to it or, if that is more, to
// the row's root mean square, or by `errors` of its values, which may be empty. A `static_scale` of
// 0: the row's own.
inline RowInDouble quantize_in_double(std::span<const double> x,
                                      QuantType granularity,
                                      QuantDType dtype,
                                      double static_scale = 0,
                                      double noise = 1e-6,
                                      std::span<const double> errors = {}) {
  const bool is_float4 = dtype == QuantDType::kFloat4E2M1;
  const double limit = dtype == QuantDType::kInt8 ? 127 : is_float4 ? 6 : 448;
  const size_t group = granularity == QuantType::kPer1x128  ? 128
                       : granularity == QuantType::kPer1x32 ? 32
                                                            : x.size();
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double mean = std::sqrt(squares / static_cast<double>(x.size()));
  RowInDouble row;
  for (size_t begin = 0; begin < x.size(); begin += group) {
    const std::span<const double> part = x.subspan(begin, std::min(group, x.size() - begin));
    double largest = 0, largest_error = 0;
    for (size_t i = 0; i < part.size(); ++i) {
      if (std::abs(part[i]) <= largest) continue;
      largest = std::abs(part[i]);
      largest_error = errors.empty() ? 0 : errors[begin + i] / largest;
    }
    double scale = static_scale > 0 ? static_scale : largest > 0 ? largest / limit : 1;
    if (is_float4) scale = std::exp2(std::ceil(std::log2(scale)));
    row.scales.push_back(scale);
    for (const double value : part) {
      const double code = nearest_code(dtype, value / scale);
      const double error = errors.empty() ? 0 : errors[row.values.size()];
      const double off = std::max(noise * std::max(std::abs(value), mean),
                                  error + largest_error * std::abs(value));
      const double up = nearest_code(dtype, (value + off) / scale);
      const double down = nearest_code(dtype, (value - off) / scale);
      row.values.push_back(code * scale);
      row.doubt.push_back(std::abs(up - down) * scale);
    }
  }
  return row;
}

}  // namespace atom::ops
