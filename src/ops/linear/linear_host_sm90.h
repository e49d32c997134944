// What the host sides of the linears for Hopper share.
#pragma once

#include "ops/device/tensor_map.cuh"
#include "ops/linear/linear_gpu_call.h"

namespace atom::ops {

constexpr int kPanelSize = 128;     // bytes of a row that lie side by side, swizzled, after a copy
constexpr int kCopyAlignment = 16;  // bytes, of tensor copies

inline bool is_multiple(const void* data, int64_t unit) {
  return reinterpret_cast<uintptr_t>(data) % unit == 0;
}

inline int divide_up(int a, int b) {
  return (a + b - 1) / b;
}

// Of the current device.
inline gpuError_t count_multiprocessors(int* count) {
  int gpu = 0;
  const gpuError_t error = cudaGetDevice(&gpu);
  if (error != cudaSuccess) return error;
  return cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, gpu);
}

// Of a weight or of x, in boxes of panels.
template <int kRank>
bool encode_linear_map(CUtensorMap* map,
                       Element element,
                       const void* data,
                       const TensorMapShape<kRank>& shape) {
  const CUtensorMapDataType type = element == Element::kFloat8E4M3 ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                   : element == Element::kFloat16
                                       ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                       : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  return encode_tensor_map(
      map, type, data, shape, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
}

// Rows of the weight's element and p's in_features, `stride` elements apart, in boxes of a panel of
// `box_rows` rows.
inline bool encode_linear_rows(CUtensorMap* map,
                               const LinearGpuCall& p,
                               const void* data,
                               int64_t num_rows,
                               int64_t stride,
                               int box_rows) {
  const int64_t element_size = bytes_of(p.weight_element);
  const TensorMapShape<2> shape = {
      {static_cast<cuuint64_t>(p.in_features), static_cast<cuuint64_t>(num_rows)},
      {static_cast<cuuint64_t>(stride * element_size)},
      {static_cast<cuuint32_t>(kPanelSize / element_size), static_cast<cuuint32_t>(box_rows)}};
  return encode_linear_map(map, p.weight_element, data, shape);
}

}  // namespace atom::ops
