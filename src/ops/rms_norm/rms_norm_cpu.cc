#include <cmath>

#include "ops/rms_norm/rms_norm_kernels.h"
#include "tensor/dispatch.h"

namespace atom::ops {
namespace {

template <typename T>
void norm_row(const RmsNormArgs& args, const T* x, T* residual, T* out) {
  float sum_of_squares = 0;
  for (int64_t i = 0; i < args.size; ++i) {
    float value = to_float(x[i]);
    if (residual != nullptr) {
      residual[i] = from_float<T>(value + to_float(residual[i]));
      value = to_float(residual[i]);
    }
    sum_of_squares += value * value;
  }
  const float scale = 1.0f / std::sqrt(sum_of_squares / static_cast<float>(args.size) + args.eps);
  const T* source = residual != nullptr ? residual : x;
  for (int64_t i = 0; i < args.size; ++i) {
    const float y = to_float(source[i]) * scale;
    if (args.rounds_once) {
      out[i] = from_float<T>(static_cast<const float*>(args.weight)[i] * y);
    } else {
      const float weight = to_float(static_cast<const T*>(args.weight)[i]);
      out[i] = from_float<T>(weight * to_float(from_float<T>(y)));
    }
  }
}

}  // namespace

void rms_norm_reference(const RmsNormArgs& args, int64_t begin, int64_t end) {
  dispatch_float(static_cast<DType>(args.element), [&]<typename T>(TypeTag<T>) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t token = row / args.num_heads, head = row % args.num_heads;
      const int64_t x_offset = token * args.x_strides[0] + head * args.x_strides[1];
      const int64_t out_offset = token * args.out_strides[0] + head * args.out_strides[1];
      T* residual = static_cast<T*>(args.residual);
      if (residual != nullptr) residual += token * args.residual_stride;
      norm_row(args,
               static_cast<const T*>(args.x) + x_offset,
               residual,
               static_cast<T*>(args.out) + out_offset);
    }
  });
}

}  // namespace atom::ops
