// Inside the streaming linear: what becomes of a finished sum.
#pragma once

#include "ops/device/elements.cuh"
#include "ops/linear/linear_stream_cuda.h"

namespace atom::ops::device {

__device__ inline float load_as(GpuElement element, const void* data, int64_t index) {
  switch (element) {
    case GpuElement::kFloat16:
      return to_float(static_cast<const Half*>(data)[index]);
    case GpuElement::kBFloat16:
      return to_float(static_cast<const BFloat16*>(data)[index]);
    default:
      return static_cast<const float*>(data)[index];
  }
}

__device__ inline void store_as(GpuElement element, void* data, int64_t index, float value) {
  switch (element) {
    case GpuElement::kFloat16:
      static_cast<Half*>(data)[index] = from_float<Half>(value);
      return;
    case GpuElement::kBFloat16:
      static_cast<BFloat16*>(data)[index] = from_float<BFloat16>(value);
      return;
    default:
      static_cast<float*>(data)[index] = value;
  }
}

__device__ inline float round_as(GpuElement element, float value) {
  switch (element) {
    case GpuElement::kFloat16:
      return round_to<Half>(value);
    case GpuElement::kBFloat16:
      return round_to<BFloat16>(value);
    default:
      return value;
  }
}

// The sum of one row of x and one row of the weight, with scales and bias.
__device__ inline float finished_sum(const LinearStreamParams& p, float sum, int row, int feature) {
  if (p.x_scale != nullptr) sum *= p.x_scale[p.x_scale_per_row ? row : 0];
  if (p.weight_scale != nullptr) sum *= p.weight_scale[p.weight_scale_per_row ? feature : 0];
  if (p.bias == nullptr) return sum;
  return sum + load_as(p.bias_element, p.bias, feature);
}

// kStore and kAddResidual.
__device__ inline void store_sum(const LinearStreamParams& p, float sum, int row, int feature) {
  float value = finished_sum(p, sum, row, feature);
  const int64_t index = row * p.y_stride + feature;
  if (p.epilogue == StreamEpilogue::kAddResidual) {
    value = load_as(p.y_element, p.y, index) + round_as(p.y_element, value);
  }
  store_as(p.y_element, p.y, index, value);
}

// kSiluAndMul: the sums of the gate row `feature` and of its up row.
__device__ inline void store_gated(
    const LinearStreamParams& p, float gate_sum, float up_sum, int row, int feature) {
  const float gate = round_as(p.y_element, finished_sum(p, gate_sum, row, feature));
  const float up =
      round_as(p.y_element, finished_sum(p, up_sum, row, p.out_features / 2 + feature));
  store_as(p.y_element, p.y, row * p.y_stride + feature, gate / (1.0f + __expf(-gate)) * up);
}

}  // namespace atom::ops::device
