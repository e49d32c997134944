#include <algorithm>
#include <cmath>

#include "ops/quantize/quantize_kernels.h"
#include "tensor/dispatch.h"
#include "tensor/float4.h"
#include "tensor/float8.h"

namespace atom::ops {
namespace {

// NaN does not count.
template <typename T>
float largest_of(const T* x, int64_t size) {
  float largest = 0.0f;
  for (int64_t k = 0; k < size; ++k) {
    const float magnitude = std::fabs(to_float(x[k]));
    if (magnitude > largest) largest = magnitude;
  }
  return largest;
}

template <typename T>
bool all_finite(const T* x, int64_t size) {
  return std::all_of(x, x + size, [](T value) { return std::isfinite(to_float(value)); });
}

float scale_of(float largest, float limit) {
  const float scale = largest / limit;
  return scale > 0.0f ? scale : 1.0f;
}

template <typename T>
void quantize_float8(const T* x, int64_t size, const float* given, float* made, uint8_t* values) {
  const float scale = made != nullptr ? scale_of(largest_of(x, size), kFloat8E4M3Max) : *given;
  if (made != nullptr) *made = scale;
  for (int64_t k = 0; k < size; ++k) {
    values[k] = from_float<Float8E4M3>(to_float(x[k]) / scale).bits;
  }
}

template <typename T>
void quantize_int8(const T* x, int64_t size, const float* given, float* made, uint8_t* values) {
  float scale = made != nullptr ? scale_of(largest_of(x, size), 127.0f) : *given;
  if (made != nullptr && !all_finite(x, size)) scale = NAN;
  if (made != nullptr) *made = scale;
  for (int64_t k = 0; k < size; ++k) {
    const float value = to_float(x[k]) / scale;
    // What is not a number becomes 127.
    const float limited =
        value > -128.0f ? std::min(value, 127.0f) : (value <= -128.0f ? -128.0f : 127.0f);
    values[k] = static_cast<uint8_t>(static_cast<int8_t>(std::nearbyint(limited)));
  }
}

template <typename T>
void quantize_float4(
    const T* x, int64_t size, E8M0Rounding rounding, uint8_t* exponent, uint8_t* values) {
  const bool finite = all_finite(x, size);
  *exponent = finite ? e8m0_scale_for_float4(largest_of(x, size), rounding) : 0xff;
  const float factor = finite ? std::ldexp(1.0f, 127 - *exponent) : 0.0f;
  for (int64_t k = 0; k < size; k += 2) {
    const uint8_t low = float4_from_float(to_float(x[k]) * factor);
    const uint8_t high = float4_from_float(to_float(x[k + 1]) * factor);
    values[k / 2] = static_cast<uint8_t>(low | high << 4);
  }
}

template <typename T>
void quantize_row(const QuantizeArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  for (int64_t begin = 0, g = 0; begin < args.size; begin += args.group_size, ++g) {
    const int64_t size = std::min(args.group_size, args.size - begin);
    float* made = args.scales == nullptr ? nullptr : args.scales + g;
    switch (args.dtype) {
      case QuantDType::kFloat8E4M3:
        quantize_float8(x + begin, size, args.static_scale, made, args.values + begin);
        break;
      case QuantDType::kInt8:
        quantize_int8(x + begin, size, args.static_scale, made, args.values + begin);
        break;
      default:
        quantize_float4(x + begin,
                        size,
                        args.rounds_exponents ? E8M0Rounding::kEven : E8M0Rounding::kUp,
                        args.exponents + g,
                        args.values + begin / 2);
    }
  }
}

}  // namespace

void quantize_reference(const QuantizeArgs& args, int64_t begin, int64_t end) {
  dispatch_float(static_cast<DType>(args.element), [&]<typename T>(TypeTag<T>) {
    for (int64_t row = begin; row < end; ++row) quantize_row<T>(row_of(args, row));
  });
}

}  // namespace atom::ops
