// Inside linear: the plain GPU kernel for packed weights, whatever they are multiplied by.
#pragma once

#include <stdint.h>

#include "tensor/element.h"
#include "tensor/quant_type.h"

namespace atom::ops {

// How values lie in memory: floats, or the codes of a quantization.
struct PackedValues {
  const void* data;
  int64_t stride;  // from row to row, in elements of storage: bytes of two values with 4 bits
  bool is_quantized;
  Element element;   // of floats
  QuantDType dtype;  // of codes
};

// One call, weight row-major; see LinearWeight.
struct LinearQuantizedArgs {
  PackedValues x;
  PackedValues weight;
  const void* bias;           // null: none
  const void* x_scales;       // null: 1
  const void* weight_scales;  // null: 1
  void* y;
  int64_t num_rows;
  int64_t out_features;
  int64_t in_features;
  int64_t y_stride;
  int64_t group_size;  // a multiple of 16; 0: scales multiply finished sums
  int64_t scale_rows;
  bool x_scale_per_group;  // else, with x_scale_per_row, one for each row, or one for all
  bool x_scale_per_row;
  bool weight_scale_per_row;  // without groups
  bool x_scales_are_e8m0;
  bool weight_scales_are_e8m0;
  Element bias_element;
  Element y_element;
};

// On a GPU's queue (DeviceQueue::handle()). Each group's products are added by ascending k in
// float32, and so are the groups.
void linear_quantized_cuda(const LinearQuantizedArgs& args, void* queue);

}  // namespace atom::ops
