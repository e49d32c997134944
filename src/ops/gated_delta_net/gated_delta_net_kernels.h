// Inside gated_delta_net: what its kernel takes.
#pragma once

#include <stdint.h>

#include "ops/gated_delta_rule/gated_delta_rule_kernels.h"
#include "ops/quantize/quantize_kernels.h"

namespace atom::ops {

// Of a sequence that the kernel can take: a step's token and the drafts that it verifies.
constexpr int kDeltaNetMaxTokens = 8;
// Of all sequences, whose gates it multiplies itself: each block of a value head reads its rows of
// the weight again.
constexpr int kDeltaNetMaxGateTokens = 16;

// One call. rule.qkv is the convolution's input, rule.out the norm's output.
struct GatedDeltaNetArgs {
  GatedDeltaRuleArgs rule;
  const float* conv_weight;
  void* conv_state;
  const void* z;
  const float* norm_weight;
  // [num_tokens, hidden_size] and [2 * num_v_heads, hidden_size], rule.b's rows first, in place of
  // rule.a and rule.b; or null.
  const void* gate_x = nullptr;
  const void* gate_weight = nullptr;
  int64_t gate_x_stride = 0, hidden_size = 0;
  int64_t z_stride;
  int64_t conv_kernel_size;
  float eps;
  QuantizeArgs codes;  // in place of rule.out, unless they have no values
};

// Compute capability 9.0, 16-bit elements, heads of 128 x 128, a convolution over four tokens and
// no sequence with more than kDeltaNetMaxTokens; codes are FP8 in groups of 128; gates of no more
// than kDeltaNetMaxGateTokens, by rows of whole vectors.
bool fits_gated_delta_net_sm90(const GatedDeltaNetArgs& args);

// On a GPU's queue. A slot outside the pool or a longer sequence, unless it has no slot, ends the
// process. `splits`: as of recurrent_cuda().
void gated_delta_net_sm90(const GatedDeltaNetArgs& args, void* queue, int splits = 0);

// The same for so many sequences that every block has several, one token each, with at most four
// value heads a key head and no gates to multiply.
bool fits_gated_delta_net_resident_sm90(const GatedDeltaNetArgs& args);
void gated_delta_net_resident_sm90(const GatedDeltaNetArgs& args, void* queue);

}  // namespace atom::ops
