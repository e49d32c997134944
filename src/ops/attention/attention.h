// Causal attention of a step's queries over the paged KV cache, for any mixture of prefill chunks
// and decodes, with grouped query heads, sliding windows and attention sinks.
//
// Query j of sequence s has position p = seq_lens[s] - num_queries + j. It sees the keys at
// positions max(0, p - sliding_window + 1) .. p (from 0 without a window). With score
// s_i = scale * q.k_i,
//   out = sum_i exp(s_i - m) v_i / (exp(sink - m) + sum_i exp(s_i - m)),  m = max(sink, max_i s_i)
// in float32 with one rounding; variants may round exp(s_i - m) to the cache's dtype.
//
// A query's result depends bit for bit only on its query vector, its position and the keys and
// values it sees: not on the batch, nor on how the prompt was cut, nor on the block size. (A
// value that is infinite or NaN may reach earlier queries of the same step.) On a GPU variants may
// compute a sequence's single query in another way than one of several, and cut its keys, hence
// order its sums, by the lengths of all sequences (decode/decode_cuda.h).
//
// A cache in FP8 (E4M3) holds k / k_scale and v / v_scale; it is expanded a tile at a time.
#pragma once

#include "ops/attention/paged_batch.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom::ops {

struct AttentionParams {
  Tensor q;          // [num_tokens, num_heads, head_dim], may be a slice of packed qkv
  Tensor k_cache;    // [num_blocks, block_size, num_kv_heads, head_dim] q's dtype or FP8
  Tensor v_cache;    // like k_cache
  PagedBatch batch;  // slot_mapping is not used
  float scale = 1;
  float k_scale = 1;  // of a cache in FP8
  float v_scale = 1;
  int64_t sliding_window = 0;  // 0: none
  Tensor sinks;                // [num_heads] float32, or undefined
  Tensor out;                  // [num_tokens, num_heads, head_dim] q's dtype
};

// float32, float16 or bfloat16; num_heads is a multiple of num_kv_heads. The tokens' own keys and
// values are in the cache already.
void attention(const Stream& stream, const AttentionParams& params, Workspace& scratch);

}  // namespace atom::ops
