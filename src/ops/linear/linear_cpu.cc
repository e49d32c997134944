#include <vector>

#include "ops/linear/linear_variants.h"
#include "tensor/dispatch.h"

namespace atom::ops {
namespace {

template <typename T>
void read_weight_row(const LinearWeight& weight, int64_t row, float* out) {
  const WeightRow at = weight_row(weight, row);
  const T* data = weight.data.data<T>() + at.begin;
  for (int64_t k = 0; k < weight.in_features; ++k) {
    out[k] = to_float(data[k / at.step_size * at.step_stride + k % at.step_size]);
  }
}

float bias_at(const Tensor& bias, int64_t column) {
  if (!bias.defined()) return 0.0f;
  float value = 0.0f;
  dispatch_float(bias.dtype(),
                 [&]<typename B>(TypeTag<B>) { value = to_float(bias.data<B>()[column]); });
  return value;
}

// Columns [begin, end) of y; `row` holds in_features floats.
template <typename T, typename Y>
void columns_of(const LinearCall& call, int64_t begin, int64_t end, std::vector<float>& row) {
  const Tensor& x = call.x;
  const Tensor& y = call.y;
  for (int64_t n = begin; n < end; ++n) {
    read_weight_row<T>(call.weight, n, row.data());
    const float bias = bias_at(call.bias, n);
    for (int64_t t = 0; t < x.size(0); ++t) {
      const T* x_row = x.data<T>() + t * x.stride(0);
      float sum = 0.0f;
      for (int64_t k = 0; k < call.weight.in_features; ++k) sum += to_float(x_row[k]) * row[k];
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
    dispatch_float(call.weight.dtype(), [&]<typename T>(TypeTag<T>) {
      if (call.y.dtype() == DType::kFloat32) {
        columns_of<T, float>(call, begin, end, row);
      } else {
        columns_of<T, T>(call, begin, end, row);
      }
    });
  });
}

}  // namespace atom::ops
