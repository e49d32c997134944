// Inside linear: the plain GPU kernel, for shapes and layouts that no library takes.
#pragma once

#include <stdint.h>

#include "ops/simd/element.h"

namespace atom::ops {

// One call, weight row-major. Strides are in elements.
struct LinearCudaArgs {
  const void* x;
  const void* weight;
  const void* bias;  // null: none
  void* y;
  int64_t num_rows;
  int64_t out_features;
  int64_t in_features;
  int64_t x_stride;
  int64_t y_stride;
  Element element;  // of x and weight
  Element bias_element;
  Element y_element;
};

// On a GPU's queue (DeviceQueue::handle()). Each element of y is one float32 sum over ascending k.
void linear_cuda(const LinearCudaArgs& args, void* queue);

}  // namespace atom::ops
