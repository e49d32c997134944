// Inside the streaming linear: what becomes of a finished sum.
#pragma once

#include "ops/device/elements.cuh"
#include "ops/linear/linear_gpu_call.h"
#include "ops/silu_and_mul/silu_and_mul_device.cuh"

namespace atom::ops::device {

__device__ inline float load_as(Element element, const void* data, int64_t index) {
  switch (element) {
    case Element::kFloat16:
      return to_float(static_cast<const Half*>(data)[index]);
    case Element::kBFloat16:
      return to_float(static_cast<const BFloat16*>(data)[index]);
    default:
      return static_cast<const float*>(data)[index];
  }
}

__device__ inline void store_as(Element element, void* data, int64_t index, float value) {
  switch (element) {
    case Element::kFloat16:
      static_cast<Half*>(data)[index] = from_float<Half>(value);
      return;
    case Element::kBFloat16:
      static_cast<BFloat16*>(data)[index] = from_float<BFloat16>(value);
      return;
    default:
      static_cast<float*>(data)[index] = value;
  }
}

__device__ inline float round_as(Element element, float value) {
  switch (element) {
    case Element::kFloat16:
      return round_to<Half>(value);
    case Element::kBFloat16:
      return round_to<BFloat16>(value);
    default:
      return value;
  }
}

// What the sum of one row of x and one weight row is combined with, loaded before the sum is there.
struct SumInputs {
  float scale = 1;
  float bias = 0;

  __device__ void load(const LinearGpuCall& p, int row, int feature) {
    if (p.x_scale != nullptr) scale = gpu_load_from_l2(p.x_scale + (p.x_scale_per_row ? row : 0));
    if (p.weight_scale != nullptr) scale *= p.weight_scale[p.weight_scale_per_row ? feature : 0];
    if (p.bias != nullptr) bias = load_as(p.bias_element, p.bias, feature);
  }
  __device__ float finish(float sum) const { return sum * scale + bias; }
};

// One output and what it is made of besides sums: with SiLU that of a gate row and of its up row.
struct Output {
  int row;
  int feature;
  SumInputs inputs, up_inputs;
  float residual = 0;

  __device__ Output(const LinearGpuCall& p, int row, int feature) : row(row), feature(feature) {
    inputs.load(p, row, feature);
    if (p.epilogue == LinearEpilogue::kSiluAndMul) {
      up_inputs.load(p, row, p.out_features / 2 + feature);
    }
    if (p.epilogue == LinearEpilogue::kAddResidual) {
      residual = load_as(p.y_element, p.y, row * p.y_stride + feature);
    }
  }

  // `up_sum` counts with SiLU only.
  __device__ void store(const LinearGpuCall& p, float sum, float up_sum) const {
    float value = inputs.finish(sum);
    if (p.epilogue == LinearEpilogue::kAddResidual) {
      value = residual + round_as(p.y_element, value);
    } else if (p.epilogue == LinearEpilogue::kSiluAndMul) {
      const float gate = round_as(p.y_element, value);
      const float up = round_as(p.y_element, up_inputs.finish(up_sum));
      value = silu_product(gate, up);
    }
    store_as(p.y_element, p.y, row * p.y_stride + feature, value);
  }
};

}  // namespace atom::ops::device
