// Inside rms_norm_gated: what its kernels take.
#pragma once

#include <stdint.h>

#include "ops/quantize/quantize_kernels.h"
#include "tensor/element.h"

namespace atom::ops {

// One call. Row r is head r % num_heads of token r / num_heads. Strides are in elements.
struct RmsNormGatedArgs {
  const void* x;
  const void* gate;
  const float* weight;
  void* out;
  int64_t x_stride;
  int64_t gate_stride;
  int64_t out_stride;
  int64_t num_heads;
  int64_t size;
  float eps;
  Element element;
};

using RmsNormGatedKernel = void(const RmsNormGatedArgs& args, int64_t begin, int64_t end);  // rows

RmsNormGatedKernel rms_norm_gated_reference;
RmsNormGatedKernel rms_norm_gated_avx2;
RmsNormGatedKernel rms_norm_gated_avx512;

// Its result goes to norm.out or, when `codes` has values, there alone.
struct RmsNormGatedCall {
  RmsNormGatedArgs norm;
  QuantizeArgs codes;  // of tokens

  bool quantizes() const { return codes.values != nullptr; }
};

// On a GPU's queue (DeviceQueue::handle()). The codes are FP8 in groups of 128 that begin with a
// head, 16 bytes of x at a time.
bool fits_rms_norm_gated_cuda(const RmsNormGatedCall& call);
void rms_norm_gated_cuda(const RmsNormGatedCall& call, int64_t num_rows, void* queue);

}  // namespace atom::ops
