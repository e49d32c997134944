// y = x W^T (+ b) on a GPU for the few rows of a decode step, at the speed at which the weight can
// be read. The weight is row-major and read once; the rows of x are small.
//
// Every output is a float32 sum in one fixed order that depends on in_features and the tuning
// alone: neither on the other rows nor on their number.
//
// The rows of a weight do not depend on the kernel before, so with overlaps_previous their
// transfer starts before that kernel has ended (ops/device/programmatic_launch.cuh).
#pragma once

#include <cstdint>

#include "ops/device/gpu_element.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

constexpr int kMaxStreamRows = 16;

enum class StreamEpilogue : uint8_t {
  kStore,        // y = cast(acc)
  kAddResidual,  // y = cast(y + cast(acc))
  // The weight is [2 * I, K], gate then up: y[I] = cast(silu(gate) * up) of the rounded gate and
  // up, as ops::silu_and_mul of the stored product would be.
  kSiluAndMul,
};

// x and weight: bfloat16 or float16 both; or an FP8 weight with x of bfloat16, float16 (the weight
// is expanded, no scale of x) or FP8.
struct LinearStreamParams {
  const void* x = nullptr;              // [num_rows, in_features]
  const void* weight = nullptr;         // [out_features, in_features], contiguous
  const float* x_scale = nullptr;       // FP8 x: [num_rows], or [1] of a per-tensor scale
  const float* weight_scale = nullptr;  // FP8 weight: [out_features], or [1]
  const void* bias = nullptr;           // [out_features]; may be null
  void* y = nullptr;                    // [num_rows, out_features], or out_features / 2 with SiLU
  int64_t x_stride = 0;                 // elements from row to row
  int64_t y_stride = 0;
  int32_t num_rows = 0;  // 1 to kMaxStreamRows
  int32_t out_features = 0;
  int32_t in_features = 0;
  GpuElement x_element = GpuElement::kBFloat16;
  GpuElement weight_element = GpuElement::kBFloat16;
  GpuElement y_element = GpuElement::kBFloat16;  // or float16, or float32 with kStore
  GpuElement bias_element = GpuElement::kBFloat16;
  StreamEpilogue epilogue = StreamEpilogue::kStore;
  bool x_scale_per_row = false;
  bool weight_scale_per_row = false;
  bool overlaps_previous = true;
};

// The shape of the Hopper kernel's pipeline. Results depend on slice_size only.
struct LinearStreamTuning {
  int slice_size = 256;  // bytes of a weight row that a warp copies at a time: 128 or 256
  // Units of 16 such rows, per warp, that are fetched to the L2 cache beyond the pipeline's own
  // before the previous grid has ended.
  int l2_prefetch_units = 0;
};

// The pipeline that measured best.
LinearStreamTuning linear_stream_tuning(const LinearStreamParams& params);

// Portable: any GPU. in_features is a multiple of 16 bytes of both elements.
bool supports_linear_stream(const LinearStreamParams& params);
gpuError_t launch_linear_stream(const LinearStreamParams& params, gpuStream_t stream);

// Compute capability 9.0 and up: bulk copies and tensor cores. in_features is a multiple of 64
// bytes of the weight's element.
bool supports_linear_stream_sm90(const LinearStreamParams& params);
gpuError_t launch_linear_stream_sm90(const LinearStreamParams& params, gpuStream_t stream);
gpuError_t launch_linear_stream_sm90(const LinearStreamParams& params,
                                     const LinearStreamTuning& tuning,
                                     gpuStream_t stream);

}  // namespace atom::ops
