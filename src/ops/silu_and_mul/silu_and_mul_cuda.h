// The gated activation on a GPU, alone and with an FP8 result.
//
// The FP8 result is that of ops::silu_and_mul, rounded to the type of gate_up, then quantised with
// a given scale or with each row's own, as ops/rms_norm/rms_norm_cuda.h says.
#pragma once

#include <cstdint>

#include "ops/device/gpu_element.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

struct SiluAndMulLaunch {
  const void* gate_up = nullptr;  // [num_tokens, 2 * size]: gate, then up
  void* out = nullptr;            // [num_tokens, size] of gate_up's type, or FP8
  float* scale = nullptr;         // FP8 only: [num_tokens] written, or [1] read
  int64_t gate_up_stride = 0;     // elements
  int64_t out_stride = 0;
  int64_t num_tokens = 0;
  int64_t size = 0;
  GpuElement element = GpuElement::kBFloat16;  // of gate_up
  bool float8_out = false;
  bool scale_per_row = false;  // FP8 only: dynamic scales
  bool overlaps_previous = true;
};

bool supports_silu_and_mul_gpu(const SiluAndMulLaunch& params);
gpuError_t launch_silu_and_mul(const SiluAndMulLaunch& params, gpuStream_t stream);

// Quantises rows of 16-bit or float32 values to FP8, the activations of an FP8 linear that no
// fused kernel quantises.
struct QuantizeRowsLaunch {
  const void* x = nullptr;  // [num_tokens, size]
  void* out = nullptr;      // [num_tokens, size] FP8
  float* scale = nullptr;   // [num_tokens] written, or [1] read
  int64_t x_stride = 0;     // elements
  int64_t out_stride = 0;
  int64_t num_tokens = 0;
  int64_t size = 0;
  GpuElement element = GpuElement::kBFloat16;  // of x
  bool scale_per_row = false;
  bool overlaps_previous = true;
};

bool supports_quantize_rows(const QuantizeRowsLaunch& params);
gpuError_t launch_quantize_rows(const QuantizeRowsLaunch& params, gpuStream_t stream);

}  // namespace atom::ops
