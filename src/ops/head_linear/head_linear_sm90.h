// Inside head_linear: all heads in one launch, by a GPU's matrix units.
#pragma once

#include <cstdint>

#include "tensor/element.h"

namespace atom::ops {

constexpr int kHeadLinearMaxHeads = 128;

// Strides and pitches are in elements.
struct HeadLinearArgs {
  const void* x;
  void* y;
  const void* weights[kHeadLinearMaxHeads];  // [N, K] each
  bool is_float8;                            // weights; else they are of x's type
  // Of FP8, [heads][ceil(N / scale_rows), K / 128].
  const float* scales;
  int64_t scale_stride;  // from head to head
  int scale_rows;
  int64_t x_stride;  // from token to token
  int64_t y_stride;
  int64_t x_pitch;  // from head to head
  int64_t y_pitch;
  int64_t num_tokens;
  int num_heads;
  int in_features;
  int out_features;
  Element element;
};

// K a multiple of 64 up to 768, N of 64, everything aligned to 16 bytes, and a card of compute
// capability 9.0.
bool supports_head_linear_memory(const HeadLinearArgs& args);
// 16-bit elements, of weights too.
bool supports_head_linear_sm90(const HeadLinearArgs& args);
// x in bfloat16, weights in FP8 with scales of 128 columns and of at least 16 rows.
bool supports_head_linear_float8_sm90(const HeadLinearArgs& args);

// On a GPU's queue (DeviceQueue::handle()). A token's result does not depend on the others.
void head_linear_sm90(const HeadLinearArgs& args, void* queue);
void head_linear_float8_sm90(const HeadLinearArgs& args, void* queue);

}  // namespace atom::ops
