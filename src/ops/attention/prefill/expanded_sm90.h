// Attention of latents that have been expanded (DeepSeek's prefill): keys of 192 elements and
// values of 128, bfloat16, each query head with its own. Like the other prefill on Hopper.
#pragma once

#include "ops/attention/device/visible_keys.h"

namespace atom::ops {

// `params` as attention has them, but for the values: k_cache [num_blocks, block_size, heads, 192],
// v_cache [num_blocks, block_size, heads, 128], out [num_tokens, heads, 128] by its strides.
bool supports_attention_expanded_sm90(const AttentionArgs& params);

// `counter` is zero before the first launch and after each, and belongs to the launch until it has
// run.
gpuError_t launch_attention_expanded_sm90(const AttentionArgs& params,
                                          int32_t* counter,
                                          gpuStream_t stream);

}  // namespace atom::ops
