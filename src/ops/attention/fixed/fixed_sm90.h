// Attention of chunks on Hopper by the same additions in the same order as fixed/fixed_cuda.h:
// a row has the same bits there and here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/attention/device/visible_keys.h"

namespace atom::ops {

// What prefill/prefill_sm90.h supports, with heads of 64 or 128, and chunks for which an 8-bit
// cache is worth being copied.
bool supports_attention_fixed_sm90(const AttentionArgs& params);

// Scratch memory, in bytes; 0 for a cache of q's elements.
size_t attention_fixed_sm90_workspace_size(const AttentionArgs& params);

// Sequences with fewer than `min_queries` queries in this step are left alone. `counter` is zero
// before the first launch and after each; it and `workspace` belong to the launch until it has run.
gpuError_t launch_attention_fixed_sm90(const AttentionArgs& params,
                                       int32_t min_queries,
                                       void* workspace,
                                       int32_t* counter,
                                       gpuStream_t stream);

}  // namespace atom::ops
