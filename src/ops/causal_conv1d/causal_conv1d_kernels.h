// Inside causal_conv1d: what its kernels take.
#pragma once

#include <stdint.h>

#include "ops/state_batch_args.h"
#include "tensor/element.h"

namespace atom::ops {

constexpr int kConvMaxKernelSize = 8;
// Channels of a task: a row of them is a few cache lines, and the work of one token covers the cost
// of a parallel region's step.
constexpr int kConvTaskChannels = 512;

// One call. Strides are in elements.
struct CausalConv1dArgs {
  const void* x;
  const float* weight;
  void* state;
  void* out;
  StateBatchArgs batch;
  int64_t x_stride;
  int64_t out_stride;
  int64_t num_channels;
  int64_t kernel_size;
  Element element;
};

// All tokens of one sequence, for channels [first, first + count), count <= kConvTaskChannels.
struct CausalConv1dTask {
  int64_t sequence;
  int64_t first_channel;
  int64_t num_channels;
};

using CausalConv1dKernel = void(const CausalConv1dArgs& args, const CausalConv1dTask& task);

CausalConv1dKernel causal_conv1d_reference;
CausalConv1dKernel causal_conv1d_avx2;
CausalConv1dKernel causal_conv1d_avx512;

// On a GPU's queue (DeviceQueue::handle()). A slot outside the pool ends the process.
void causal_conv1d_cuda(const CausalConv1dArgs& args, void* queue);
// With device::Silu::kBrief, for elements of 16 bits.
void causal_conv1d_brief_cuda(const CausalConv1dArgs& args, void* queue);

}  // namespace atom::ops
