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
  int64_t x_stride;                          // from token to token
  int64_t y_stride;
  int64_t x_pitch;  // from head to head
  int64_t y_pitch;
  int64_t num_tokens;
  int num_heads;
  int in_features;
  int out_features;
  Element element;
};

// 16-bit elements, K a multiple of 64 up to 768, N of 64, everything aligned to 16 bytes, and a
// card of compute capability 9.0.
bool supports_head_linear_sm90(const HeadLinearArgs& args);

// On a GPU's queue (DeviceQueue::handle()). A token's result does not depend on the others.
void head_linear_sm90(const HeadLinearArgs& args, void* queue);

}  // namespace atom::ops
