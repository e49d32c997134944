// Attention of any mixture of chunks and single queries, by warp-level matrix instructions.
#pragma once

#include <cstdint>

#include "ops/attention/device/visible_keys.h"

namespace atom::ops {

bool supports_attention_prefill_cuda(const AttentionArgs& params);

// Sequences with fewer than `min_queries` queries in this step are left alone. It counts nothing.
gpuError_t launch_attention_prefill_cuda(const AttentionArgs& params,
                                         int32_t min_queries,
                                         int32_t* counter,
                                         gpuStream_t stream);

}  // namespace atom::ops
