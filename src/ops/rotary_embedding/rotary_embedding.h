// Rotates queries and keys by their positions, in place.
//
// With c, s the cosine and sine of pair i at the token's position (0 <= i < rotary_dim / 2) the
// pair (a, b) becomes (a * c - b * s, b * c + a * s), in float32 with one rounding. Elements from
// rotary_dim on pass through.
#pragma once

#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace atom::ops {

enum class RotaryStyle {
  kNeoX,         // pairs (x[i], x[i + rotary_dim / 2])
  kInterleaved,  // pairs (x[2i], x[2i + 1])
};

// q and k may be slices of one packed qkv tensor. float32, float16 or bfloat16. Positions are below
// max_position.
void rotary_embedding(
    const Stream& stream,
    const Tensor& positions,  // [num_tokens] int32
    const Tensor& cos_sin,    // [max_position, rotary_dim] float32: cosines, then sines
    const Tensor& q,          // [num_tokens, num_heads, head_dim]
    const Tensor& k,          // [num_tokens, num_kv_heads, head_dim] q's dtype
    RotaryStyle style);

}  // namespace atom::ops
