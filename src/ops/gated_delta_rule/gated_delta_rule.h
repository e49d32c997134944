// The gated delta rule: the recurrence of a Gated DeltaNet layer, for any mixture of prefill chunks
// and decodes. It goes on from the state that a slot of the pool holds, and leaves the new one
// there. For value head h, with key head h / (num_v_heads / num_k_heads), and token t:
//
//   q = l2norm(q_t) / sqrt(head_k_dim),  k = l2norm(k_t)       l2norm(x) = x / sqrt(sum x^2 + 1e-6)
//   g = -exp(a_log[h]) * softplus(a_t[h] + dt_bias[h])         softplus(x) = x above 20
//   S = exp(g) S                                               [head_k_dim, head_v_dim]
//   u = sigmoid(b_t[h]) (v_t - S^T k)
//   S = S + k u^T
//   out_t = S^T q
//
// in float32 with one rounding of out. Many tokens of a sequence are computed a chunk of 64 at a
// time (the WY form), few one after the other: the sums differ in order, not in meaning. A token's
// result depends on its own sequence alone; on a stream with fixed rows, which has no chunks, not
// on how many of its tokens a call has either.
#pragma once

#include "ops/state_batch.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom::ops {

struct GatedDeltaRuleParams {
  // [num_tokens, 2 * num_k_heads * head_k_dim + num_v_heads * head_v_dim], row stride allowed: the
  // heads of queries, of keys, of values.
  Tensor qkv;
  int64_t num_k_heads = 0;
  Tensor a;        // [num_tokens, num_v_heads] qkv's dtype, row stride allowed
  Tensor b;        // like a
  Tensor a_log;    // [num_v_heads] float32
  Tensor dt_bias;  // [num_v_heads] float32
  // [num_slots, num_v_heads, head_k_dim, head_v_dim] float32, or bfloat16: rounded to the nearest
  // where it is left in a slot, and what follows goes on from what was left. Updated.
  Tensor state;
  StateBatch batch;
  Tensor out;  // [num_tokens, num_v_heads * head_v_dim] qkv's dtype, row stride allowed; not qkv
};

// float32, float16 or bfloat16; num_v_heads is a multiple of num_k_heads.
void gated_delta_rule(const Stream& stream, const GatedDeltaRuleParams& params, Workspace& scratch);

}  // namespace atom::ops
