#include <algorithm>
#include <vector>

#include "ops/linear/linear_variants.h"
#include "tensor/dispatch.h"
#include "tensor/float4.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

template <typename T>
float value_of(T value) {
  if constexpr (std::is_same_v<T, int8_t>) {
    return value;
  } else {
    return to_float(value);
  }
}

float four_bits_to_float(QuantDType dtype, int code) {
  return dtype == QuantDType::kInt4 ? static_cast<float>(code - 8)
                                    : float4_to_float(static_cast<uint8_t>(code));
}

// Value k of a row of bytes of two values, or of a column of a panel, whose steps of 4 bytes begin
// with the values of even k.
float four_bits_at(const LinearWeight& weight, const WeightRow& at, int64_t k) {
  const uint8_t* data = weight.data.data<uint8_t>() + at.begin;
  int64_t byte = k / 2, shift = k % 2 * 4;
  if (weight.layout == WeightLayout::kPanels) {
    const int64_t place = k % 2 * 4 + k % 8 / 2;
    byte = k / 8 * at.step_stride + place / 2;
    shift = place % 2 * 4;
  }
  return four_bits_to_float(weight.four_bits, data[byte] >> shift & 15);
}

void read_weight_row(const LinearWeight& weight, int64_t row, float* out) {
  const WeightRow at = weight_row(weight, row);
  if (weight.dtype() == DType::kUInt8) {
    for (int64_t k = 0; k < weight.in_features; ++k) out[k] = four_bits_at(weight, at, k);
    return;
  }
  const auto read = [&](const auto* data) {
    data += at.begin;
    for (int64_t k = 0; k < weight.in_features; ++k) {
      out[k] = value_of(data[k / at.step_size * at.step_stride + k % at.step_size]);
    }
  };
  if (weight.dtype() == DType::kFloat8E4M3) return read(weight.data.data<Float8E4M3>());
  if (weight.dtype() == DType::kInt8) return read(weight.data.data<int8_t>());
  dispatch_float(weight.dtype(), [&]<typename T>(TypeTag<T>) { read(weight.data.data<T>()); });
}

void read_x_row(const Tensor& x, int64_t row, int64_t in_features, float* out) {
  const auto read = [&](const auto* data) {
    data += row * x.stride(0);
    for (int64_t k = 0; k < in_features; ++k) out[k] = value_of(data[k]);
  };
  switch (x.dtype()) {
    case DType::kFloat8E4M3:
      return read(x.data<Float8E4M3>());
    case DType::kInt8:
      return read(x.data<int8_t>());
    case DType::kUInt8: {
      const uint8_t* bytes = x.data<uint8_t>() + row * x.stride(0);
      for (int64_t k = 0; k < in_features; ++k) {
        out[k] = float4_to_float(static_cast<uint8_t>(bytes[k / 2] >> (k % 2 * 4)));
      }
      return;
    }
    default:
      dispatch_float(x.dtype(), [&]<typename T>(TypeTag<T>) { read(x.data<T>()); });
  }
}

float bias_at(const Tensor& bias, int64_t column) {
  if (!bias.defined()) return 0.0f;
  float value = 0.0f;
  dispatch_float(bias.dtype(),
                 [&]<typename B>(TypeTag<B>) { value = to_float(bias.data<B>()[column]); });
  return value;
}

float group_scale_at(const Tensor& scales, int64_t index) {
  return scales.dtype() == DType::kUInt8 ? e8m0_to_float(scales.data<uint8_t>()[index])
                                         : scales.data<float>()[index];
}

float sum_of(const float* x, const float* w, int64_t begin, int64_t end) {
  float sum = 0.0f;
  for (int64_t k = begin; k < end; ++k) sum += x[k] * w[k];
  return sum;
}

// Of integers, exactly.
float integer_sum_of(const float* x, const float* w, int64_t size) {
  int64_t sum = 0;
  for (int64_t k = 0; k < size; ++k) sum += static_cast<int64_t>(x[k]) * static_cast<int64_t>(w[k]);
  return static_cast<float>(sum);
}

// The product of row t of x and row n of the weight.
float product(const LinearCall& call, int64_t t, int64_t n, const float* x, const float* w) {
  const LinearWeight& weight = call.weight;
  const int64_t size = weight.in_features;
  if (!weight.has_groups()) {
    const float sum =
        call.x.dtype() == DType::kInt8 ? integer_sum_of(x, w, size) : sum_of(x, w, 0, size);
    return sum * row_scale_at(weight.scales, n) * row_scale_at(call.x_scales, t);
  }
  const bool scales_groups = call.x_scales.defined() && call.x_scales.rank() == 2;
  float sum = 0.0f;
  for (int64_t begin = 0, g = 0; begin < size; begin += weight.group_size, ++g) {
    float scale = group_scale_at(weight.scales, group_scale_index(weight, n, g));
    if (scales_groups) scale *= group_scale_at(call.x_scales, t * call.x_scales.size(1) + g);
    sum += sum_of(x, w, begin, std::min(begin + weight.group_size, size)) * scale;
  }
  return scales_groups ? sum : sum * row_scale_at(call.x_scales, t);
}

// Columns [begin, end) of y; `rows` are those of x in float32.
template <typename Y>
void columns_of(const LinearCall& call,
                int64_t begin,
                int64_t end,
                const std::vector<float>& rows) {
  const Tensor& y = call.y;
  const int64_t size = call.weight.in_features;
  std::vector<float> weight_row(size);
  for (int64_t n = begin; n < end; ++n) {
    read_weight_row(call.weight, n, weight_row.data());
    const float bias = bias_at(call.bias, n);
    for (int64_t t = 0; t < call.x.size(0); ++t) {
      const float sum = product(call, t, n, rows.data() + t * size, weight_row.data());
      y.data<Y>()[t * y.stride(0) + n] = from_float<Y>(sum + bias);
    }
  }
}

}  // namespace

void linear_reference(const Stream& stream, const LinearCall& call, Workspace&) {
  if (stream.is_dry_run()) return;
  constexpr int64_t kGrain = 16;
  const int64_t size = call.weight.in_features;
  std::vector<float> rows(call.x.size(0) * size);
  for (int64_t t = 0; t < call.x.size(0); ++t) {
    read_x_row(call.x, t, size, rows.data() + t * size);
  }
  stream.pool().parallel_for(call.weight.out_features, kGrain, [&](int64_t begin, int64_t end) {
    dispatch_float(call.y.dtype(),
                   [&]<typename Y>(TypeTag<Y>) { columns_of<Y>(call, begin, end, rows); });
  });
}

}  // namespace atom::ops
