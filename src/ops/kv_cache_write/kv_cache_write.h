// Stores the keys and values of a step's tokens in the paged cache, or one plane of rows alone.
#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

// A slot is block_id * block_size + offset, or -1 for a token that is not stored. No slot occurs
// twice. k and v may be views of a packed qkv tensor. A cache in FP8 (E4M3) holds k / k_scale and
// v / v_scale, to nearest even and limited to +-448; others hold k and v as they are. Where v and
// v_cache are undefined, only k is stored.
void kv_cache_write(const Stream& stream,
                    const Tensor& k,             // [num_tokens, num_kv_heads, head_dim]
                    const Tensor& v,             // [num_tokens, num_kv_heads, head_dim]
                    const Tensor& slot_mapping,  // [num_tokens] int32
                    const Tensor& k_cache,       // [num_blocks, block_size, num_kv_heads, head_dim]
                    const Tensor& v_cache,       // like k_cache; both of k's dtype, or both FP8
                    float k_scale = 1.0f,
                    float v_scale = 1.0f);

}  // namespace atom::ops
