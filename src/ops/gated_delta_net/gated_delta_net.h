// What a Gated DeltaNet layer computes between its projections, as one operator: causal_conv1d of
// queries, keys and values, gated_delta_rule of what that gives, and rms_norm_gated of the result,
// each rounded as it is there. On a GPU steps of few tokens a sequence are one kernel, with the
// projection that gives the gates where the tokens of all sequences are few.
#pragma once

#include "ops/linear/linear.h"
#include "ops/quantize/quantized_rows.h"
#include "ops/state_batch.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace atom::ops {

struct GatedDeltaNetParams {
  // [num_tokens, num_channels], num_channels = 2 * num_k_heads * head_k_dim + num_v_heads *
  // head_v_dim, row stride allowed: the heads of queries, of keys, of values.
  Tensor qkv;
  int64_t num_k_heads = 0;
  Tensor a;  // [num_tokens, num_v_heads] qkv's dtype, row stride allowed
  Tensor b;  // like a
  // Where a and b are undefined they are the products of these, rounded: [num_tokens, hidden_size]
  // of qkv's dtype, row stride allowed, and a weight of 2 * num_v_heads rows, those of b first.
  Tensor gate_x;
  LinearWeight gate_weight;
  Tensor z;            // [num_tokens, num_v_heads * head_v_dim] likewise
  Tensor conv_weight;  // [kernel_size, num_channels] float32
  Tensor a_log;        // [num_v_heads] float32
  Tensor dt_bias;      // [num_v_heads] float32
  Tensor norm_weight;  // [head_v_dim] float32
  float eps = 0;
  // Updated, as their operators do. On a GPU the kernel that runs before this one must not write
  // what sequences' slots hold of `state`.
  Tensor conv_state;  // [num_slots, kernel_size - 1, num_channels] qkv's dtype
  Tensor state;       // [num_slots, num_v_heads, head_k_dim, head_v_dim] float32 or bfloat16
  StateBatch batch;
  Tensor out;  // [num_tokens, num_v_heads * head_v_dim] qkv's dtype; neither qkv nor z
  // When defined, the result's codes, bit for bit what ops::quantize gives of it, are all that is
  // left: `out` holds anything afterwards.
  QuantizedRows codes;
};

// float32, float16 or bfloat16; num_v_heads is a multiple of num_k_heads.
void gated_delta_net(const Stream& stream, const GatedDeltaNetParams& params, Workspace& scratch);

}  // namespace atom::ops
