// What stands between an indexer's projections and its scores, in one pass: the norm of its one key
// per token and, where it has one, of every query head, rotary embedding of both, and the keys into
// the indexer's own paged cache.
//
//   k: with a bias LayerNorm, (x - mean) / sqrt(variance + eps) * weight + bias, otherwise RMSNorm,
//      x / sqrt(mean(x^2) + eps) * weight
//   q: with a weight RMSNorm, otherwise as it is
// in float32 with one rounding, after the rotation.
#pragma once

#include "ops/rotary_embedding/rotary_embedding.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

struct IndexerNormRopeCacheParams {
  Tensor q;  // [num_tokens, num_heads * head_dim], in place; like k a slice of packed rows or not
  Tensor q_weight;  // [head_dim] float32; undefined: no norm
  Tensor k;         // [num_tokens, head_dim] q's dtype, left as it is
  Tensor k_weight;  // [head_dim] float32
  Tensor k_bias;    // [head_dim] float32; undefined: RMSNorm
  float eps = 0;
  Tensor positions;  // [num_tokens] int32, below max_position
  Tensor cos_sin;    // [max_position, rotary_dim] float32: cosines, then sines
  RotaryStyle style = RotaryStyle::kNeoX;  // of the head's first rotary_dim elements
  Tensor slot_mapping;  // [num_tokens] int32, of slots in the cache; -1: not stored
  Tensor key_cache;     // [num_blocks, block_size, head_dim] q's dtype
};

// float32, float16 or bfloat16; head_dim is at most 512.
void indexer_norm_rope_cache(const Stream& stream, const IndexerNormRopeCacheParams& params);

}  // namespace atom::ops
