// Inside linear: the plain GPU kernel, for shapes and layouts that no library takes.
#pragma once

#include <stdint.h>

#include "tensor/element.h"

namespace atom::ops {

// One call, weight row-major. Strides are in elements.
struct LinearCudaArgs {
  const void* x;
  const void* weight;
  const void* bias;            // null: none
  const float* x_scales;       // null: 1
  const float* weight_scales;  // null: 1
  void* y;
  int64_t num_rows;
  int64_t out_features;
  int64_t in_features;
  int64_t x_stride;
  int64_t y_stride;
  bool x_scale_per_row;       // else one for all
  bool weight_scale_per_row;  // else one for all
  Element x_element;
  Element weight_element;  // that of x, or FP8
  Element bias_element;
  Element y_element;  // float32, or that of x unless it is FP8
};

// On a GPU's queue (DeviceQueue::handle()). Each element of y is one float32 sum over ascending k.
void linear_cuda(const LinearCudaArgs& args, void* queue);

}  // namespace atom::ops
