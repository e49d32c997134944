// Inside fused_moe: the activation over rows of float32 sums, a file per instruction set.
#pragma once

#include <stdint.h>

#include "ops/fused_moe/gated_activation.h"
#include "tensor/element.h"

namespace atom::ops {

struct ActivateArgs {
  const float* sums;  // [rows, 2 * size]
  void* out;          // [rows, size]
  int64_t size;
  Element element;  // of out
  GatedActivation activation;
};

using ActivateKernel = void(const ActivateArgs& args, int64_t begin, int64_t end);  // rows

ActivateKernel activate_reference;
ActivateKernel activate_avx2;
ActivateKernel activate_avx512;

}  // namespace atom::ops
