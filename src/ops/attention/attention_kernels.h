// Inside attention: what its kernels take.
#pragma once

#include <stdint.h>

#include "ops/simd/element.h"

namespace atom::ops {

// Keys are processed in tiles that begin at multiples of this position, whatever the block size,
// so that the order of every query's additions is fixed.
constexpr int kAttentionTileKeys = 64;
// Rows of a task: its queries times the query heads of its KV heads. Large enough that packing a
// tile of keys costs little beside using it, small enough for the second-level cache.
constexpr int kAttentionTaskRows = 96;
// Of kernels that keep their tiles on the stack.
constexpr int kAttentionMaxHeadDim = 256;

// One call. Strides are in elements.
struct AttentionArgs {
  const void* q;
  const void* k_cache;
  const void* v_cache;
  const int32_t* block_tables;
  const int32_t* query_start;
  const int32_t* seq_lens;
  const int32_t* settled_lens;  // or null
  const float* sinks;           // null: none
  void* out;
  int64_t q_strides[2];  // token, head
  int64_t out_strides[2];
  int64_t block_table_stride;
  int64_t block_size;
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t sliding_window;  // 0: none
  int64_t num_tokens;
  int64_t num_sequences;
  int64_t num_blocks;
  int64_t max_blocks;                // of a sequence
  int64_t min_queries, max_queries;  // of a sequence; 0: not known
  float scale;                       // of products with keys as the cache holds them
  float v_scale;                     // of sums of values as the cache holds them
  Element element;                   // of q and out, and of a cache that is not in FP8
  bool float8_cache;
};

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

constexpr int kAttentionCudaMaxHeadDim = 512;

// On a GPU's queue (DeviceQueue::handle()); the lengths and tables are in the device's memory. A
// sequence of length 0 that has a query is a row of padding: its output is 0.
void attention_cuda(const AttentionArgs& args, void* queue);

}  // namespace atom::ops
