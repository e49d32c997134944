// Attention of sequences with a single query in this step, by the same additions in the same order
// as fixed/fixed_cuda.h's chunks: a row has the same bits there, here, and in every batch. As
// in decode/decode_cuda.h which block computes what is found on the device, and the grid depends
// on the device alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/attention/device/visible_keys.h"

namespace atom::ops {

// Blocks of the cache must be of a multiple of 16 tokens; the device must have Hopper's amount of
// shared memory.
bool supports_attention_fixed_decode_cuda(const AttentionArgs& params);

// Bytes of partial results.
size_t attention_fixed_decode_workspace_size(const AttentionArgs& params);

// Number of int32 counters: zero before the first launch, and zero again after each.
size_t attention_fixed_decode_num_counters(const AttentionArgs& params);

// Sequences with another number of queries than one are left alone. `workspace` (16-byte aligned)
// and `counters` belong to the launch until it has run. With overlaps_previous query_start,
// seq_lens and block_tables are not written by the kernel before this one, which lets this one
// start (ops/device/programmatic_launch.cuh).
gpuError_t launch_attention_fixed_decode_cuda(const AttentionArgs& params,
                                              void* workspace,
                                              int32_t* counters,
                                              gpuStream_t stream,
                                              bool overlaps_previous = true);

}  // namespace atom::ops
