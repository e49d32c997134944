// Attention of a step's queries over selected tokens of the paged KV cache, with grouped query
// heads:
//   out = sum_i exp(s_i - m) v_i / sum_i exp(s_i - m),   s_i = scale * q.k_i,  m = max_i s_i
// over the positions i that the query's row of `indices` names, in float32 with one rounding;
// products of matrices take rounded weights. A query without any has 0.
//
// A query's result depends on its query vector, its row of indices and those keys and values alone.
// A cache in FP8 (E4M3) holds k / k_scale and v / v_scale.
#pragma once

#include "ops/attention/paged_batch.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

struct SparseAttentionParams {
  Tensor q;        // [num_tokens, num_heads, head_dim], may be a slice of packed qkv
  Tensor k_cache;  // [num_blocks, block_size, num_kv_heads, head_dim] q's dtype or FP8
  Tensor v_cache;  // like k_cache
  PagedBatch batch;
  // [num_tokens, top_k] int32: positions in the token's own sequence, none twice, up to its own;
  // from the first -1 on no more. What indexer_top_k() writes.
  Tensor indices;
  float scale = 1;
  float k_scale = 1;  // of a cache in FP8
  float v_scale = 1;
  Tensor out;  // [num_tokens, num_heads, head_dim] q's dtype
};

// float32, float16 or bfloat16; num_heads is a multiple of num_kv_heads. The tokens' own keys and
// values are in the cache already.
void sparse_attention(const Stream& stream, const SparseAttentionParams& params);

}  // namespace atom::ops
