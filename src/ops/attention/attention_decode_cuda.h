// Attention of sequences with a single query in this step: split over the keys, all query heads of
// a KV head together. Work is found on the device from query_start and seq_lens, so that a captured
// launch serves all later lengths up to max_seq_len.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/attention/attention_gpu.h"

namespace atom::ops {

bool supports_attention_decode_cuda(const AttentionGpuParams& params);

// Bytes of partial results, for params.max_seq_len and params.num_sequences.
size_t attention_decode_workspace_size(const AttentionGpuParams& params);

// Number of int32 counters: zero before the first launch, and zero again after each.
size_t attention_decode_num_counters(const AttentionGpuParams& params);

// Sequences with another number of queries than one are left alone. `workspace` (16-byte aligned)
// and `counters` belong to the launch until it has run.
gpuError_t launch_attention_decode_cuda(const AttentionGpuParams& params,
                                        void* workspace,
                                        int32_t* counters,
                                        gpuStream_t stream);

}  // namespace atom::ops
