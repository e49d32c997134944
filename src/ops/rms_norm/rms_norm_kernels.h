// Inside rms_norm: what its kernels take.
#pragma once

#include <stdint.h>

#include "ops/quantize/quantize_kernels.h"
#include "tensor/element.h"

namespace atom {
struct PeerView;
}

namespace atom::ops {

// One call. Row r is head r % num_heads of token r / num_heads. Strides are in elements.
struct RmsNormArgs {
  const void* x;
  void* residual;  // null: nothing to add
  const void* weight;
  void* out;
  int64_t x_strides[2];  // token, head
  int64_t residual_stride;
  int64_t out_strides[2];
  int64_t num_heads;
  int64_t size;
  float eps;
  Element element;
  bool rounds_once;  // the weight is float32 and multiplies the unrounded value
};

using RmsNormKernel = void(const RmsNormArgs& args, int64_t begin, int64_t end);  // rows

RmsNormKernel rms_norm_reference;
RmsNormKernel rms_norm_avx2;
RmsNormKernel rms_norm_avx512;

// A norm whose result is quantized too, unless `codes` has no values; without rows norm.out is
// null.
struct RmsNormCall {
  RmsNormArgs norm;
  QuantizeArgs codes;

  bool quantizes() const { return codes.values != nullptr; }
};

// On a GPU's queue (DeviceQueue::handle()): rows, codes or both.
using RmsNormGpuKernel = void(const RmsNormCall& call, int64_t num_rows, void* queue);

RmsNormGpuKernel rms_norm_cuda;

// The same where x is this rank's part of a sum; where a kernel does it, which is the same on all
// ranks.
bool supports_rms_norm_of_ranks_cuda(const RmsNormCall& call,
                                     int64_t num_rows,
                                     const PeerView& peers);
void rms_norm_of_ranks_cuda(const RmsNormCall& call,
                            int64_t num_rows,
                            const PeerView& peers,
                            void* queue);

}  // namespace atom::ops
