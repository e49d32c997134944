// Inside gated_delta_rule: the kernel over a vector type, which the file of each instruction set
// includes. `Simd` has internal linkage, and so has every instance.
#pragma once

#include <string.h>

#include "ops/gated_delta_rule/gated_delta_rule_chunk.h"
#include "ops/gated_delta_rule/gated_delta_rule_tokens.h"

namespace atom::ops {

// The states of the task's heads in a slot.
static inline float* states_in(const GatedDeltaRuleArgs& args,
                               const GatedDeltaRuleTask& task,
                               int64_t slot) {
  const int64_t state_size = args.head_k_dim * args.head_v_dim;
  return args.state + (slot * args.num_v_heads + task.first_v_head) * state_size;
}

// Tokens of which each leaves its state in a slot.
template <typename Simd, typename T>
void advance_and_keep(const GatedDeltaRuleArgs& args,
                      const GatedDeltaRuleTask& task,
                      int64_t begin,
                      int64_t end,
                      const float* from) {
  const int64_t state_size = args.head_k_dim * args.head_v_dim;
  const int64_t key_head = task.first_v_head / (args.num_v_heads / args.num_k_heads);
  DeltaChunk chunk;
  for (int64_t token = begin; token < end; ++token) {
    float* to = states_in(args, task, args.batch.token_slots[token]);
    normalize_tokens<Simd, T>(args, token, 1, key_head, chunk);
    for (int64_t i = 0; i < task.num_v_heads; ++i) {
      const int64_t at = i * state_size;
      advance_one_by_one<Simd, T>(args, token, 1, task.first_v_head + i, from + at, to + at, chunk);
    }
    from = to;
  }
}

template <typename Simd, typename T>
void advance_tokens(const GatedDeltaRuleArgs& args,
                    const GatedDeltaRuleTask& task,
                    int64_t begin,
                    int64_t end,
                    int64_t slot) {
  const int64_t state_size = args.head_k_dim * args.head_v_dim;
  const uint64_t num_bytes = task.num_v_heads * state_size * sizeof(float);
  const int64_t key_head = task.first_v_head / (args.num_v_heads / args.num_k_heads);
  const int32_t* kept = args.batch.token_slots;
  const bool has_history = args.batch.seq_lens[task.sequence] > end - begin;
  if (kept != nullptr && has_history && kept[begin] >= 0) {
    return advance_and_keep<Simd, T>(args, task, begin, end, states_in(args, task, slot));
  }
  float* states = states_in(args, task, kept == nullptr ? slot : kept[end - 1]);
  if (!has_history) {
    memset(states, 0, num_bytes);
  } else if (states != states_in(args, task, slot)) {
    memcpy(states, states_in(args, task, slot), num_bytes);
  }
  DeltaChunk chunk;
  for (int64_t first = begin; first < end; first += kDeltaChunk) {
    const int64_t count = end - first < kDeltaChunk ? end - first : kDeltaChunk;
    const bool few = count < kDeltaChunkMinTokens;
    if (few) {
      normalize_tokens<Simd, T>(args, first, count, key_head, chunk);
    } else {
      begin_chunk<Simd, T>(args, first, count, key_head, chunk);
    }
    for (int64_t i = 0; i < task.num_v_heads; ++i) {
      float* state = states + i * state_size;
      const int64_t head = task.first_v_head + i;
      if (few) {
        advance_one_by_one<Simd, T>(args, first, count, head, state, state, chunk);
      } else {
        advance_by_chunk<Simd, T>(args, first, count, head, state, chunk);
      }
    }
  }
}

template <typename Simd, typename T>
void gated_delta_rule_of(const GatedDeltaRuleArgs& args, const GatedDeltaRuleTask& task) {
  const int64_t begin = args.batch.query_start[task.sequence];
  const int64_t end = args.batch.query_start[task.sequence + 1];
  const int64_t slot = args.batch.state_slots[task.sequence];
  if (begin == end) return;
  if (slot >= 0) return advance_tokens<Simd, T>(args, task, begin, end, slot);
  for (int64_t token = begin; token < end; ++token) {
    for (int64_t i = 0; i < task.num_v_heads; ++i) {
      memset(out_of<T>(args, token, task.first_v_head + i), 0, args.head_v_dim * sizeof(T));
    }
  }
}

template <typename Simd>
void gated_delta_rule_task(const GatedDeltaRuleArgs& args, const GatedDeltaRuleTask& task) {
  switch (args.element) {
    case Element::kFloat32:
      return gated_delta_rule_of<Simd, float>(args, task);
    case Element::kFloat16:
      return gated_delta_rule_of<Simd, Float16Bits>(args, task);
    case Element::kBFloat16:
      return gated_delta_rule_of<Simd, BFloat16Bits>(args, task);
    case Element::kFloat8E4M3:
      __builtin_trap();  // no operator takes it as `element`
  }
}

}  // namespace atom::ops
