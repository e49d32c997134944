// Inside attention on the CPU: how a call is cut into tasks, and the kernels that compute one.
#pragma once

#include <stdint.h>

#include "ops/attention/attention_args.h"

namespace atom::ops {

// Keys are processed in tiles that begin at multiples of this position, whatever the block size,
// so that the order of every query's additions is fixed.
constexpr int kAttentionTileKeys = 64;
// Rows of a task: its queries times the query heads of its KV heads. Large enough that packing a
// tile of keys costs little beside using it, small enough for the second-level cache.
constexpr int kAttentionTaskRows = 96;
// Sizes of kernels that keep their tiles on the stack.
constexpr int kAttentionMaxHeadDim = 256;

// Consecutive queries of one sequence, for consecutive KV heads.
struct AttentionTask {
  int32_t sequence;
  int32_t first_query;  // within the sequence's queries of this step
  int32_t num_queries;
  int32_t num_keys;  // that at least one of the queries sees
  int32_t first_kv_head;
  int32_t num_kv_heads;
};

using AttentionKernel = void(const AttentionArgs& args, const AttentionTask& task);

AttentionKernel attention_reference;
AttentionKernel attention_avx2;
AttentionKernel attention_avx512;
AttentionKernel attention_amx;  // in bfloat16, of heads of a multiple of 32

}  // namespace atom::ops
