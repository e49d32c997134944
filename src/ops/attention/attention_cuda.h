// Inside attention: the plain kernel of any GPU, for heads up to kAttentionCudaMaxHeadDim.
#pragma once

#include "ops/attention/attention_args.h"

namespace atom::ops {

constexpr int kAttentionCudaMaxHeadDim = 512;

// On a GPU's queue (DeviceQueue::handle()). The output of a row of padding is 0.
void attention_cuda(const AttentionArgs& args, void* queue);

}  // namespace atom::ops
