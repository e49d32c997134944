// Inside attention: what its GPU kernels take. The contract of attention.h holds.
#pragma once

#include <cstdint>

#include "tensor/gpu_api.h"

namespace atom::ops {

enum class AttentionElement : int32_t { kFloat16, kBfloat16, kFloat8E4m3 };

// One launch. All pointers are to device memory; strides are in elements and multiples of 8, rows
// begin at multiples of 16 bytes.
struct AttentionGpuParams {
  const void* q;                // [num_tokens, num_heads, head_dim], head_dim contiguous
  const void* k_cache;          // [num_blocks, block_size, num_kv_heads, head_dim] contiguous
  const void* v_cache;          // like k_cache
  const int32_t* block_tables;  // [num_sequences, >= blocks of the sequence]
  const int32_t* query_start;   // [num_sequences + 1]
  const int32_t* seq_lens;      // [num_sequences]; 0: the sequence is skipped
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
  float k_scale;  // keys are k_scale times what a kFloat8E4m3 cache holds, otherwise 1
  float v_scale;
  AttentionElement element;     // of q and out: kFloat16 or kBfloat16
  AttentionElement kv_element;  // `element` or kFloat8E4m3
};

// First position that the query at `position` sees.
inline __host__ __device__ int32_t first_visible_key(int32_t position, int32_t sliding_window) {
  const int32_t first = position - sliding_window + 1;
  return sliding_window == 0 || first < 0 ? 0 : first;
}

}  // namespace atom::ops
