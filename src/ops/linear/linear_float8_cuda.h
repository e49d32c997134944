// Inside linear: what surrounds multiplications of FP8 by a library on a GPU. All on a queue
// (DeviceQueue::handle()); strides are in elements.
#pragma once

#include <stdint.h>

#include "tensor/element.h"

namespace atom::ops {

// The values of FP8 codes, exactly.
struct Float8Expansion {
  const void* codes;  // [num_rows, size]
  void* values;       // [num_rows, size] `element`, contiguous
  int64_t num_rows;
  int64_t size;  // a multiple of 8
  int64_t codes_stride;
  Element element;
};
void expand_float8_cuda(const Float8Expansion& args, void* queue);

// y[t, n] = sums[t, n] * weight_scales[n] * x_scales[t] + bias[n], rounded once.
struct ScaledSums {
  const float* sums;           // [num_rows, num_columns], contiguous
  const float* x_scales;       // null: 1
  const float* weight_scales;  // null: 1
  const void* bias;            // null: none
  void* y;                     // [num_rows, num_columns]
  int64_t num_rows;
  int64_t num_columns;  // a multiple of 4
  int64_t y_stride;     // a multiple of 4
  bool x_scale_per_row;
  bool weight_scale_per_row;
  Element bias_element;
  Element y_element;
};
void scale_sums_cuda(const ScaledSums& args, void* queue);

// transposed[group, row] = scales[row, group], `stride` from group to group.
void transpose_scales_cuda(const float* scales,
                           float* transposed,
                           int64_t num_rows,
                           int64_t num_groups,
                           int64_t stride,
                           void* queue);

// repeated[0, count) = *scale, or 1 where scale is null.
void repeat_scale_cuda(const float* scale, float* repeated, int64_t count, void* queue);

}  // namespace atom::ops
