// Inside linear: one call of the kernels that are ours on a GPU (stream, narrow, skinny, wgmma,
// ordered), y = x W^T (+ b). How many rows a kernel takes, and which elements, its
// supports_linear_...() says.
#pragma once

#include <cstdint>

#include "tensor/element.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

enum class LinearEpilogue : uint8_t {
  kStore,        // y = cast(acc)
  kAddResidual,  // y = cast(y + cast(acc))
  // The weight is [2 * I, K], gate then up: y[I] = cast(silu(gate) * up) of the rounded gate and
  // up, as ops::silu_and_mul of the stored product would be.
  kSiluAndMul,
};

constexpr int32_t kLinearGroupSize = 128;

// x and weight: bfloat16 or float16 both; or an FP8 weight with x of bfloat16, float16 (the weight
// is expanded, no scale of x) or FP8, that with FP8 also with scales of groups.
struct LinearGpuCall {
  const void* x = nullptr;       // [num_rows, in_features]
  const void* weight = nullptr;  // [out_features, in_features], contiguous
  // FP8 x: [num_rows], or [1] of a per-tensor scale; with groups [num_rows, num_groups()].
  const float* x_scale = nullptr;
  // FP8 weight: [out_features], or [1]; with groups [ceil(out_features / scale_rows),
  // num_groups()].
  const float* weight_scale = nullptr;
  const void* bias = nullptr;  // [out_features]; may be null
  void* y = nullptr;           // [num_rows, out_features], or out_features / 2 with SiLU
  int64_t x_stride = 0;        // elements from row to row
  int64_t y_stride = 0;
  int32_t num_rows = 0;
  int32_t out_features = 0;
  int32_t in_features = 0;
  Element x_element = Element::kBFloat16;
  Element weight_element = Element::kBFloat16;
  Element y_element = Element::kBFloat16;  // or float16, or float32 with kStore
  Element bias_element = Element::kBFloat16;
  LinearEpilogue epilogue = LinearEpilogue::kStore;
  bool x_scale_per_row = false;
  bool weight_scale_per_row = false;
  int32_t group_size = 0;  // values of a row that share a scale, kLinearGroupSize; 0: all
  int32_t scale_rows = 1;  // with groups: weight rows that share one
  // The weight and the bias are not written by the kernel before, so their transfer may start
  // before it has ended (ops/device/programmatic_launch.cuh).
  bool overlaps_previous = true;

  constexpr bool has_groups() const { return group_size > 0; }
  constexpr int32_t num_groups() const { return (in_features + group_size - 1) / group_size; }
};

}  // namespace atom::ops
