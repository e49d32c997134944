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

// On a GPU's queue (DeviceQueue::handle()); at least one row.
using QuantFp8GpuKernel = void(const QuantFp8Args& args, int64_t num_rows, void* queue);

QuantFp8GpuKernel quant_fp8_cuda;
QuantFp8GpuKernel quant_fp8_vector_cuda;  // 16 bytes at a time
bool fits_quant_fp8_vector(const QuantFp8Args& args);

// Sets *found, which starts as 0, when one of the codes is NaN: vectors of 16, on an address that
// is a multiple of 16.
void find_nan_cuda(const void* codes, int64_t num_vectors, uint32_t* found, void* queue);

}  // namespace atom::ops
