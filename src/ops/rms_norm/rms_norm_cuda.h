// RMSNorm on a GPU, alone, after the residual addition, and with an FP8 result.
//
// The FP8 result, with or without the rows beside it, is that of ops::rms_norm, rounded to x's type
// as there, and then quantized as ops/quantize/quantize.h says, with a given scale, with each row's
// own or with those of groups of 128, of which rows have whole ones.
#pragma once

#include <cstdint>

#include "ops/rms_norm/rms_norm_kernels.h"
#include "tensor/element.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

struct RmsNormLaunch {
  const void* x = nullptr;       // [num_tokens, num_heads, size]
  void* residual = nullptr;      // [num_tokens, size] with one head, or null; read and written
  const void* weight = nullptr;  // [size] of x's type, or float32 with rounds_once
  void* out = nullptr;           // like x, or FP8; may be x itself when of its type
  void* rows = nullptr;          // beside an FP8 result: its rows in x's type, or null
  // One of them makes the result FP8.
  float* scales = nullptr;              // [num_tokens * num_heads], or of groups, written
  const float* static_scale = nullptr;  // [1]
  int64_t x_strides[2] = {};            // elements from token to token and from head to head
  int64_t out_strides[2] = {};
  int64_t rows_stride = 0;  // with one head
  int64_t residual_stride = 0;
  int64_t num_tokens = 0;
  int64_t num_heads = 1;
  int64_t size = 0;
  int32_t group_size = 0;  // of elements that share one of `scales`: 128, or 0: a row
  float eps = 0;
  Element element = Element::kBFloat16;  // of x and residual
  bool rounds_once = false;              // a float32 weight with 16-bit x
  bool overlaps_previous = true;

  constexpr bool is_float8() const { return scales != nullptr || static_scale != nullptr; }
};

// The launch of an operator's call.
RmsNormLaunch rms_norm_launch(const RmsNormArgs& args, int64_t num_rows);

// A residual goes with one head.
bool supports_rms_norm_gpu(const RmsNormLaunch& params);
gpuError_t launch_rms_norm(const RmsNormLaunch& params, gpuStream_t stream);

}  // namespace atom::ops
