// Inside sigmoid_gate: what its kernels take.
#pragma once

#include <stdint.h>

#include "ops/quantize/quantize_kernels.h"
#include "tensor/element.h"

namespace atom::ops {

// One call. Row r is head r % num_heads of token r / num_heads. Strides are in elements.
struct SigmoidGateArgs {
  const void* x;
  const void* gate;
  void* out;
  int64_t x_strides[2];  // token, head
  int64_t gate_strides[2];
  int64_t out_strides[2];
  int64_t num_heads;
  int64_t size;
  bool gate_per_row;  // one for all of the row's elements
  bool adds;
  Element element;
};

using SigmoidGateKernel = void(const SigmoidGateArgs& args, int64_t begin, int64_t end);  // rows

SigmoidGateKernel sigmoid_gate_reference;
SigmoidGateKernel sigmoid_gate_avx2;
SigmoidGateKernel sigmoid_gate_avx512;

// Its result goes to gate.out or, when `codes` has values, there alone.
struct SigmoidGateCall {
  SigmoidGateArgs gate;
  QuantizeArgs codes;  // of tokens

  bool quantizes() const { return codes.values != nullptr; }
};

// On a GPU's queue (DeviceQueue::handle()). The codes are FP8 in groups of 128 that begin with a
// head, 16 bytes of x at a time.
bool fits_sigmoid_gate_cuda(const SigmoidGateCall& call);
void sigmoid_gate_cuda(const SigmoidGateCall& call, int64_t num_rows, void* queue);

}  // namespace atom::ops
