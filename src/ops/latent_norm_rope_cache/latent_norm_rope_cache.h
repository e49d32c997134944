// What stands between the projections of latent attention and the attention itself, in one pass:
// RMSNorm of a token's latent, rotary embedding of its key and of its queries, latent and key into
// the paged cache.
//
// It gives what rms_norm, rotary_embedding and kv_cache_write give one after the other, with their
// roundings; only sums of squares may be added up in another order.
#pragma once

#include "ops/rotary_embedding/rotary_embedding.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

struct LatentNormRopeCacheParams {
  Tensor q;       // [num_tokens, num_heads, rope_dim], in place: what is rotated of each query
  Tensor kv;      // [num_tokens, 1, rank + rope_dim] q's dtype; unspecified afterwards
  Tensor weight;  // [rank] q's dtype, as rms_norm takes it
  float eps = 0;
  Tensor positions;  // [num_tokens] int32, below max_position
  Tensor cos_sin;    // [max_position, rope_dim] float32: cosines, then sines
  RotaryStyle style = RotaryStyle::kInterleaved;
  Tensor slot_mapping;  // [num_tokens] int32, of slots in the cache; -1: not stored
  Tensor cache;         // [num_blocks, block_size, rank + rope_dim] q's dtype or FP8
};

// float32, float16 or bfloat16. Rows of q and kv may be strided.
void latent_norm_rope_cache(const Stream& stream, const LatentNormRopeCacheParams& params);

}  // namespace atom::ops
