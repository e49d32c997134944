#include <vector>

#include "ops/linear/linear_variants.h"
#include "tensor/dispatch.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

template <typename Body>
void dispatch_element(DType dtype, Body&& body) {
  if (dtype == DType::kFloat8E4M3) return body(TypeTag<Float8E4M3>{});
  dispatch_float(dtype, body);
}

void read_weight_row(const LinearWeight& weight, int64_t row, float* out) {
  const WeightRow at = weight_row(weight, row);
  dispatch_element(weight.dtype(), [&]<typename T>(TypeTag<T>) {
    const T* data = weight.data.data<T>() + at.begin;
    for (int64_t k = 0; k < weight.in_features; ++k) {
      out[k] = to_float(data[k / at.step_size * at.step_stride + k % at.step_size]);
    }
  });
}

// One scale for all, or one each; 1 when undefined.
float scale_at(const Tensor& scales, int64_t index) {
  if (!scales.defined()) return 1.0f;
  return scales.data<float>()[scales.num_elements() == 1 ? 0 : index];
}

float bias_at(const Tensor& bias, int64_t column) {
  if (!bias.defined()) return 0.0f;
  float value = 0.0f;
  dispatch_float(bias.dtype(),
                 [&]<typename B>(TypeTag<B>) { value = to_float(bias.data<B>()[column]); });
  return value;
}

// Columns [begin, end) of y; `row` holds in_features floats.
template <typename X, typename Y>
void columns_of(const LinearCall& call, int64_t begin, int64_t end, std::vector<float>& row) {
  const Tensor& x = call.x;
  const Tensor& y = call.y;
  for (int64_t n = begin; n < end; ++n) {
    read_weight_row(call.weight, n, row.data());
    const float bias = bias_at(call.bias, n);
    const float scale = scale_at(call.weight.scales, n);
    for (int64_t t = 0; t < x.size(0); ++t) {
      const X* x_row = x.data<X>() + t * x.stride(0);
      float sum = 0.0f;
      for (int64_t k = 0; k < call.weight.in_features; ++k) sum += to_float(x_row[k]) * row[k];
      sum = sum * scale * scale_at(call.x_scales, t);
      y.data<Y>()[t * y.stride(0) + n] = from_float<Y>(sum + bias);
    }
  }
}

}  // namespace

void linear_reference(const Stream& stream, const LinearCall& call, Workspace&) {
  if (stream.is_dry_run()) return;
  constexpr int64_t kGrain = 16;
  stream.pool().parallel_for(call.weight.out_features, kGrain, [&](int64_t begin, int64_t end) {
    std::vector<float> row(call.weight.in_features);
    dispatch_element(call.x.dtype(), [&]<typename X>(TypeTag<X>) {
      dispatch_float(call.y.dtype(),
                     [&]<typename Y>(TypeTag<Y>) { columns_of<X, Y>(call, begin, end, row); });
    });
  });
}

}  // namespace atom::ops
