// Inside quantize: what its kernels take.
#pragma once

#include <stdint.h>

#include "tensor/element.h"

namespace atom::ops {

// One call. Strides are in elements.
struct QuantizeArgs {
  const void* x;
  uint8_t* values;
  float* scales;              // per token, written; null: static_scale points to the scale
  const float* static_scale;  // null: per token
  int64_t x_stride;
  int64_t values_stride;
  int64_t size;  // of a row
  Element element;
};

// The call of one row.
inline QuantizeArgs row_of(const QuantizeArgs& args, int64_t row) {
  const int64_t element_size = args.element == Element::kFloat32 ? 4 : 2;
  QuantizeArgs one = args;
  if (args.x != nullptr) {
    one.x = static_cast<const char*>(args.x) + row * args.x_stride * element_size;
  }
  one.values = args.values + row * args.values_stride;
  if (args.scales != nullptr) one.scales = args.scales + row;
  return one;
}

using QuantizeKernel = void(const QuantizeArgs& args, int64_t begin, int64_t end);  // rows

QuantizeKernel quantize_reference;
QuantizeKernel quantize_avx2;
QuantizeKernel quantize_avx512;

// On a GPU's queue (DeviceQueue::handle()); at least one row.
using QuantizeGpuKernel = void(const QuantizeArgs& args, int64_t num_rows, void* queue);

QuantizeGpuKernel quantize_cuda;
QuantizeGpuKernel quantize_vector_cuda;  // 16 bytes at a time
bool fits_quantize_vector(const QuantizeArgs& args);

// Sets *found, which starts as 0, when one of the codes is NaN: vectors of 16, on an address that
// is a multiple of 16.
void find_nan_cuda(const void* codes, int64_t num_vectors, uint32_t* found, void* queue);

}  // namespace atom::ops
