// What stands between a step's projections and its attention, in one pass: RMSNorm of every head of
// the queries and keys (or none), rotary embedding, keys and values into the paged cache.
//
// It gives what rms_norm, rotary_embedding and kv_cache_write give one after the other, with their
// roundings; only sums of squares may be added up in another order.
#pragma once

#include "ops/rotary_embedding/rotary_embedding.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

struct QkNormRopeCacheParams {
  Tensor
      q;  // [num_tokens, num_heads, head_dim], in place; like k and v a slice of packed qkv or not
  Tensor k;         // [num_tokens, num_kv_heads, head_dim] q's dtype; unspecified afterwards
  Tensor v;         // like k, left as it is
  Tensor q_weight;  // [head_dim] q's dtype or float32, as rms_norm takes it; undefined: no norm
  Tensor k_weight;  // like q_weight
  float eps = 0;
  Tensor positions;  // [num_tokens] int32, below max_position
  Tensor cos_sin;    // [max_position, rotary_dim] float32: cosines, then sines
  RotaryStyle style = RotaryStyle::kNeoX;
  Tensor slot_mapping;  // [num_tokens] int32, of slots in the cache; -1: not stored
  Tensor k_cache;       // [num_blocks, block_size, num_kv_heads, head_dim] q's dtype or FP8
  Tensor v_cache;       // like k_cache
  float k_scale = 1;    // a cache in FP8 holds k / k_scale
  float v_scale = 1;
};

// float32, float16 or bfloat16.
void qk_norm_rope_cache(const Stream& stream, const QkNormRopeCacheParams& params);

}  // namespace atom::ops
