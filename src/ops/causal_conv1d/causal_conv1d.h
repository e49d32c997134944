// The causal depthwise convolution before a linear-attention layer, with SiLU behind it, for any
// mixture of prefill chunks and decodes. It goes on where the sequence's last step ended: a slot of
// the pool of states holds the last kernel_size - 1 inputs.
//
//   y[t, c] = silu(sum_j weight[j, c] * x[t - (kernel_size - 1) + j, c]),   0 <= j < kernel_size
//
// in float32, over ascending j, with one rounding. Inputs before the sequence's first are 0. A
// token's result depends on its sequence alone, and not on how it was cut into steps.
#pragma once

#include "ops/state_batch.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

struct CausalConv1dParams {
  Tensor x;       // [num_tokens, num_channels], row stride allowed
  Tensor weight;  // [kernel_size, num_channels] float32; the last row multiplies the token itself
  Tensor state;   // [num_slots, kernel_size - 1, num_channels] x's dtype, oldest first; updated
  StateBatch batch;
  Tensor out;  // [num_tokens, num_channels] x's dtype, row stride allowed; not x
};

// float32, float16 or bfloat16; kernel_size is 2 to 8.
void causal_conv1d(const Stream& stream, const CausalConv1dParams& params);

}  // namespace atom::ops
