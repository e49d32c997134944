// Multi-head latent attention in its absorbed form: all query heads of a token attend to one row
// per key, whose first `rank` elements are the key's latent and the value at once, and whose last
// `rope` ones are the rotated part of the key:
//   s_i = scale * (q_latent.c_i + q_rope.k_i),   cache row i = [c_i (rank) | k_i (rope)]
//   out = sum_i exp(s_i - m) c_i / sum_i exp(s_i - m),   m = max_i s_i
// over the positions i up to the query's own or, with `indices`, those that its row of them names.
// With the projections W_UK and W_UV of a head, q_latent = W_UK^T q_nope and W_UV out are what
// attention over the expanded keys W_UK c_i, k_i and values W_UV c_i gives (DeepSeek-V2, 2.1.2).
//
// Float32 with one rounding. A query's result depends bit for bit only on its two vectors, its
// position or indices, and the rows it sees. A query without keys has 0. On a GPU, the variant for
// Hopper rounds the weights exp(s_i - m) too, to bfloat16 or, with a cache of FP8, to float16, and
// where it cuts the keys of a query follows from the batch.
#pragma once

#include "ops/attention/paged_batch.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom::ops {

struct MlaAttentionParams {
  Tensor q_latent;  // [num_tokens, num_heads, rank], may be a slice
  Tensor q_rope;    // [num_tokens, num_heads, rope] q_latent's dtype, may be a slice
  Tensor cache;     // [num_blocks, block_size, rank + rope] q_latent's dtype or FP8 (E4M3)
  PagedBatch batch;
  // [num_tokens, top_k] int32, or undefined: positions in the token's own sequence, none twice, up
  // to its own; from the first -1 on no more. What indexer_top_k() writes.
  Tensor indices;
  float scale = 1;
  Tensor out;  // [num_tokens, num_heads, rank] q_latent's dtype
};

// float32, float16 or bfloat16. The tokens' own rows are in the cache already.
void mla_attention(const Stream& stream, const MlaAttentionParams& params, Workspace& scratch);

}  // namespace atom::ops
