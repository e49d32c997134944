// Attention of any mixture of chunks and single queries on Hopper: pages are gathered by the tensor
// memory accelerator, products are warpgroup matrix instructions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/attention/device/visible_keys.h"

namespace atom::ops {

// Compute capability 9.0, head dim 64, 128 or 256, a cache of q's or 8-bit elements, blocks of 16,
// 32, 64, or a multiple of 128 tokens.
bool supports_attention_prefill_sm90(const AttentionArgs& params);

// Scratch memory that makes it fast, in bytes; 0 for a cache of q's elements.
size_t attention_prefill_sm90_workspace_size(const AttentionArgs& params);

// Sequences with fewer than `min_queries` queries in this step are left alone. `counter` is zero
// before the first launch and after each, and belongs to the launch until it has run. With less
// workspace than is asked for, or none, sequences that do not fit take longer.
gpuError_t launch_attention_prefill_sm90(const AttentionArgs& params,
                                         int32_t min_queries,
                                         void* workspace,
                                         size_t workspace_size,
                                         int32_t* counter,
                                         gpuStream_t stream);

}  // namespace atom::ops
