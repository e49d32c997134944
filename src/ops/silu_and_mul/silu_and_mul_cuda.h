// The gated activation on a GPU, alone and with an FP8 result.
//
// The FP8 result is that of ops::silu_and_mul, rounded to the type of gate_up, then quantized as
// ops/quantize/quantize.h says, with a given scale, with each row's own or with those of groups of
// 128, of which rows have whole ones.
#pragma once

#include <cstdint>

#include "ops/silu_and_mul/silu_and_mul_kernels.h"
#include "tensor/element.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

struct SiluAndMulLaunch {
  const void* gate_up = nullptr;  // [num_tokens, 2 * size]: gate, then up
  void* out = nullptr;            // [num_tokens, size] of gate_up's type, or FP8
  // One of them makes the result FP8.
  float* scales = nullptr;              // [num_tokens], or of groups, written
  const float* static_scale = nullptr;  // [1]
  int64_t gate_up_stride = 0;           // elements
  int64_t out_stride = 0;
  int64_t num_tokens = 0;
  int64_t size = 0;
  int32_t group_size = 0;                // of elements that share one of `scales`: 128, or 0: a row
  Element element = Element::kBFloat16;  // of gate_up
  bool overlaps_previous = true;
};

// The launch of an operator's call.
SiluAndMulLaunch silu_and_mul_launch(const SiluAndMulArgs& args, int64_t num_rows);

bool supports_silu_and_mul_gpu(const SiluAndMulLaunch& params);
gpuError_t launch_silu_and_mul(const SiluAndMulLaunch& params, gpuStream_t stream);

}  // namespace atom::ops
