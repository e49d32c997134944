// Inside silu_and_mul: what its kernels take.
#pragma once

#include <stdint.h>

#include "ops/quantize/quantize_kernels.h"
#include "tensor/element.h"

namespace atom::ops {

// One call. Strides are in elements.
struct SiluAndMulArgs {
  const void* gate_up;
  void* out;
  int64_t gate_up_stride;
  int64_t out_stride;
  int64_t size;  // of an output row
  Element element;
};

using SiluAndMulKernel = void(const SiluAndMulArgs& args, int64_t begin, int64_t end);  // rows

SiluAndMulKernel silu_and_mul_reference;
SiluAndMulKernel silu_and_mul_avx2;
SiluAndMulKernel silu_and_mul_avx512;

// A product that is quantized too, unless `codes` has no values; without rows product.out is null.
struct SiluAndMulCall {
  SiluAndMulArgs product;
  QuantizeArgs codes;

  bool quantizes() const { return codes.values != nullptr; }
};

// On a GPU's queue (DeviceQueue::handle()): rows or codes.
using SiluAndMulGpuKernel = void(const SiluAndMulCall& call, int64_t num_rows, void* queue);

SiluAndMulGpuKernel silu_and_mul_cuda;

}  // namespace atom::ops
