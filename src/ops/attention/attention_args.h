// Inside attention: one call as its kernels take it, on every device. The contract of attention.h
// holds.
#pragma once

#include <stdint.h>

#include "tensor/element.h"

namespace atom::ops {

// Pointers are to memory of the call's device; strides are in elements. A GPU's sequence of length
// 0 that has a query is a row of padding.
struct AttentionArgs {
  const void* q;                // [num_tokens, num_heads, head_dim], head_dim contiguous
  const void* k_cache;          // [num_blocks, block_size, num_kv_heads, head_dim] contiguous
  const void* v_cache;          // like k_cache
  const int32_t* block_tables;  // [num_sequences, >= blocks of the sequence]
  const int32_t* query_start;   // [num_sequences + 1]
  const int32_t* seq_lens;      // [num_sequences]
  const int32_t* settled_lens;  // [num_sequences]: keys of earlier steps; or null
  const float* sinks;           // [num_heads], or null
  void* out;                    // like q
  int64_t q_token_stride;
  int64_t q_head_stride;
  int64_t out_token_stride;
  int64_t out_head_stride;
  int64_t block_table_stride;
  int32_t num_sequences;
  int32_t num_tokens;  // rows of q: at least query_start[num_sequences]
  int32_t num_blocks;
  int32_t block_size;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t sliding_window;  // 0: none
  int32_t max_queries;     // of a sequence; 0: not known
  int32_t max_seq_len;     // of the values that seq_lens may hold when the launch is replayed
  float scale;
  float k_scale;    // keys are k_scale times what a cache in FP8 holds, otherwise 1
  float v_scale;    // values alike
  Element element;  // of q and out, and of a cache that is not in FP8
  bool float8_cache;
  int32_t min_queries;  // of a sequence; 0: not known
};

}  // namespace atom::ops
