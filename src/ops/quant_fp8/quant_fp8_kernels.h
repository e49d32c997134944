// Inside quant_fp8: what its kernels take.
#pragma once

#include <stdint.h>

#include "ops/simd/element.h"

namespace atom::ops {

// One call. Strides are in elements.
struct QuantFp8Args {
  const void* x;
  uint8_t* values;
  float* scales;              // per token, written; null: static_scale points to the scale
  const float* static_scale;  // null: per token
  int64_t x_stride;
  int64_t values_stride;
  int64_t size;  // of a row
  Element element;
};

using QuantFp8Kernel = void(const QuantFp8Args& args, int64_t begin, int64_t end);  // rows

QuantFp8Kernel quant_fp8_reference;
QuantFp8Kernel quant_fp8_avx2;
QuantFp8Kernel quant_fp8_avx512;

}  // namespace atom::ops
