#include <cmath>

#include "ops/quantize/quantize_kernels.h"
#include "tensor/dispatch.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

// NaN does not count.
template <typename T>
float scale_of_row(const T* x, int64_t size) {
  float largest = 0.0f;
  for (int64_t k = 0; k < size; ++k) {
    const float magnitude = std::fabs(to_float(x[k]));
    if (magnitude > largest) largest = magnitude;
  }
  const float scale = largest / kFloat8E4M3Max;
  return scale > 0.0f ? scale : 1.0f;
}

}  // namespace

void quantize_reference(const QuantizeArgs& args, int64_t begin, int64_t end) {
  dispatch_float(static_cast<DType>(args.element), [&]<typename T>(TypeTag<T>) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
      uint8_t* values = args.values + row * args.values_stride;
      const float scale = args.scales != nullptr ? scale_of_row(x, args.size) : *args.static_scale;
      if (args.scales != nullptr) args.scales[row] = scale;
      for (int64_t k = 0; k < args.size; ++k) {
        values[k] = from_float<Float8E4M3>(to_float(x[k]) / scale).bits;
      }
    }
  });
}

}  // namespace atom::ops
