// Attention whose results do not depend on what else a step computes: neither on the other
// sequences, nor on how many queries of a sequence come together. Keys are cut into segments at
// fixed positions; a row's keys of each segment have a softmax of their own, and these are joined
// in ascending order, whether one block has computed them in turn or several side by side.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/attention/device/visible_keys.h"

namespace atom::ops {

bool supports_attention_fixed_cuda(const AttentionArgs& params);

// Bytes of partial results, the same for any number of sequences.
size_t attention_fixed_workspace_size(const AttentionArgs& params);

// Number of int32 counters: zero before the first launch, and zero again after each.
size_t attention_fixed_num_counters(const AttentionArgs& params);

// Sequences with fewer than min_queries queries are left alone. `workspace` (16-byte aligned) and
// `counters` belong to the launch until it has run: neither is used if min_queries is above 1.
gpuError_t launch_attention_fixed_cuda(const AttentionArgs& params,
                                       int min_queries,
                                       void* workspace,
                                       int32_t* counters,
                                       gpuStream_t stream);

}  // namespace atom::ops
