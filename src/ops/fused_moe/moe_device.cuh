// Inside fused_moe on a GPU: what its kernels share.
#pragma once

#include "ops/device/elements.cuh"
#include "ops/device/reductions.cuh"
#include "ops/fused_moe/expert_image_format.h"
#include "ops/fused_moe/fused_moe_gpu.h"

namespace atom::ops::device {

// 16 bytes that a grid before this one wrote.
__device__ inline uint4 load_bits_from_l2(const void* source) {
  return gpu_load_from_l2(static_cast<const uint4*>(source));
}

// Where the expert of a choice stands, or -1.
__device__ inline int place_of(const FusedMoeGpuCall& call, int choice) {
  const int id = gpu_load_from_l2(call.ids + choice);
  if (id < 0 || id >= call.num_ids) return -1;
  const int place = call.places == nullptr ? id : call.places[id];
  return place < call.num_experts ? place : -1;
}

// The lanes whose key is this lane's.
__device__ inline uint32_t lanes_with(int key, int num_keys) {
  uint32_t same = 0xffffffffu;
  for (int bit = 1; bit < num_keys; bit *= 2) {
    const uint32_t set = gpu_lanes_where((key & bit) != 0);
    same &= (key & bit) != 0 ? set : ~set;
  }
  return same;
}

__device__ inline float float_at(Element element, const void* data, int64_t index) {
  switch (element) {
    case Element::kFloat32:
      return static_cast<const float*>(data)[index];
    case Element::kFloat16:
      return to_float(static_cast<const Half*>(data)[index]);
    default:
      return to_float(static_cast<const BFloat16*>(data)[index]);
  }
}

// Of one expert's output row.
__device__ inline float bias_at(const ExpertMatrices& matrices, int expert, int row, int num_rows) {
  if (matrices.bias == nullptr) return 0.0f;
  return float_at(matrices.bias_element, matrices.bias, int64_t{expert} * num_rows + row);
}
// Of columns [scale_columns * part, scale_columns * (part + 1)) of a row.
__device__ inline float scale_at(const ExpertMatrices& matrices, int expert, int row, int part) {
  if (matrices.scales == nullptr) return 1.0f;
  return matrices.scales[expert * matrices.scale_stride +
                         row / matrices.scale_rows * matrices.scales_across + part];
}

// Of kFloat4.
constexpr int kExponentColumns = 32;

// Where an element of a matrix is: the byte of its code, and its exponent.
struct Float4Place {
  int64_t code, exponent;
  bool is_in_image;

  static __device__ Float4Place in_rows(int row, int column, int num_columns) {
    const int64_t index = int64_t{row} * num_columns + column;
    return {index / 2, index / kExponentColumns, false};
  }
  static __device__ Float4Place in_images(int row, int column, int num_columns) {
    const int block = column / kExponentColumns;
    return {image_index(row, block, num_columns) * kImageSize + image_offset(row, block) +
                column % kExponentColumns / 2,
            in_rows(row, column, num_columns).exponent,
            true};
  }
};

// Element `column` of a row of the matrix, in E2M1 with its exponent.
__device__ inline float float4_at(const ExpertMatrices& matrices,
                                  int expert,
                                  int column,
                                  const Float4Place& place) {
  const auto* data = static_cast<const uint8_t*>(matrices.data) + expert * matrices.expert_stride;
  const int shift = column % 2 * 4;
  int code = data[place.code] >> shift & 15;
  if (place.is_in_image) {
    const auto* const word = reinterpret_cast<const uint32_t*>(data + place.code / 4 * 4);
    code = static_cast<int>(row_codes(*word) >> place.code % 4 * 8 >> shift & 15);
  }
  const uint8_t exponent = matrices.exponents[expert * matrices.exponent_stride + place.exponent];
  // 2 bits of exponent and 1 of mantissa, of which 1 is half of the least.
  const int magnitude = code & 7;
  const float value =
      magnitude < 2 ? 0.5f * static_cast<float>(magnitude)
                    : ldexpf(1.0f + 0.5f * static_cast<float>(magnitude & 1), (magnitude >> 1) - 1);
  return ldexpf((code & 8) != 0 ? -value : value, exponent - 127);
}

// Quotients here are within a few units of a float32, in a few instructions: a tile's sums become
// thousands of them, one after the other, while the matrix units wait.
__device__ inline float silu_of(float x) {
  return __fdividef(x, 1.0f + __expf(-x));
}

// Of kClampedSwiGlu. Comparisons keep a NaN.
__device__ inline float clamped_swiglu(const GatedActivation& activation, float gate, float up) {
  const float limit = activation.limit;
  if (gate > limit) gate = limit;
  if (up > limit) up = limit;
  if (up < -limit) up = -limit;
  return __fdividef(gate, 1.0f + __expf(-activation.alpha * gate)) * (up + 1.0f);
}

__device__ inline float activated(const GatedActivation& activation, float gate, float up) {
  switch (activation.kind) {
    case GatedActivationKind::kSilu:
      return silu_of(gate) * up;
    case GatedActivationKind::kGelu:
      return 0.5f * gate * (1.0f + erff(gate * 0.707106781f)) * up;
    case GatedActivationKind::kGeluTanh: {
      const float inner = 0.797884561f * (gate + 0.044715f * gate * gate * gate);
      return 0.5f * gate * (1.0f + tanhf(inner)) * up;
    }
    case GatedActivationKind::kClampedSwiGlu:
      return clamped_swiglu(activation, gate, up);
  }
  return 0.0f;
}

}  // namespace atom::ops::device
