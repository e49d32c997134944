// Inside gated_delta_rule: what its kernels take.
#pragma once

#include <stdint.h>

#include "ops/state_batch_args.h"
#include "tensor/element.h"

namespace atom::ops {

constexpr int kDeltaChunk = 64;  // tokens
// Of kernels that keep a chunk on the stack.
constexpr int kDeltaMaxHeadDim = 256;
// Fewer tokens of a sequence are computed one after the other: a chunk's fixed cost is that of
// about so many.
constexpr int kDeltaChunkMinTokens = 8;

// One call. Strides are in elements.
struct GatedDeltaRuleArgs {
  const void* qkv;  // a row: heads of queries, of keys, of values
  const void* a;
  const void* b;
  const float* a_log;
  const float* dt_bias;
  void* state;
  void* out;
  StateBatchArgs batch;
  int64_t qkv_stride;
  int64_t out_stride;
  int64_t a_stride;
  int64_t b_stride;
  int64_t num_k_heads;
  int64_t num_v_heads;
  int64_t head_k_dim;
  int64_t head_v_dim;
  Element element;
  Element state_element;  // float32 or bfloat16
  // Without chunks, in which a token's sums depend on how many of its sequence a step has.
  bool by_tokens = false;
};

// All tokens of one sequence, for consecutive value heads of one key head.
struct GatedDeltaRuleTask {
  int64_t sequence;
  int64_t first_v_head;
  int64_t num_v_heads;
  // [num_v_heads, head_k_dim, head_v_dim] of the task's own, for states that are not float32.
  float* wide;
};

using GatedDeltaRuleKernel = void(const GatedDeltaRuleArgs& args, const GatedDeltaRuleTask& task);

GatedDeltaRuleKernel gated_delta_rule_reference;
GatedDeltaRuleKernel gated_delta_rule_avx2;
GatedDeltaRuleKernel gated_delta_rule_avx512;

// On a GPU's queue (DeviceQueue::handle()). A slot outside the pool ends the process.
void gated_delta_rule_cuda(const GatedDeltaRuleArgs& args, void* queue);

}  // namespace atom::ops
