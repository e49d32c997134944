// Inside gated_delta_rule: the kernel over a vector type, which the file of each instruction set
// includes. `Simd` has internal linkage, and so has every instance.
#pragma once

#include <string.h>

#include "ops/gated_delta_rule/gated_delta_rule_chunk.h"
#include "ops/gated_delta_rule/gated_delta_rule_states.h"
#include "ops/gated_delta_rule/gated_delta_rule_tokens.h"

namespace atom::ops {

// One token of all heads of the task, from some states to others or to the same.
template <typename Simd, typename T>
void advance_token(const GatedDeltaRuleArgs& args,
                   const GatedDeltaRuleTask& task,
                   int64_t token,
                   const float* from,
                   float* to,
                   DeltaChunk& chunk) {
  const int64_t state_size = args.head_k_dim * args.head_v_dim;
  const int64_t key_head = task.first_v_head / (args.num_v_heads / args.num_k_heads);
  normalize_tokens<Simd, T>(args, token, 1, key_head, chunk);
  for (int64_t i = 0; i < task.num_v_heads; ++i) {
    const int64_t at = i * state_size;
    advance_one_by_one<Simd, T>(args, token, 1, task.first_v_head + i, from + at, to + at, chunk);
  }
}

// Tokens of which each leaves its state in a slot.
template <typename Simd, typename T>
void advance_and_keep(const GatedDeltaRuleArgs& args,
                      const GatedDeltaRuleTask& task,
                      int64_t begin,
                      int64_t end,
                      int64_t slot) {
  DeltaChunk chunk;
  const int32_t* kept = args.batch.token_slots;
  if (args.state_element == Element::kFloat32) {
    const float* from = states_in<float>(args, task, slot);
    for (int64_t token = begin; token < end; ++token) {
      float* to = states_in<float>(args, task, kept[token]);
      advance_token<Simd, T>(args, task, token, from, to, chunk);
      from = to;
    }
    return;
  }
  const int64_t size = states_size(args, task);
  const BFloat16Bits* from = states_in<BFloat16Bits>(args, task, slot);
  for (int64_t token = begin; token < end; ++token) {
    convert_states<Simd>(from, size, task.wide);
    advance_token<Simd, T>(args, task, token, task.wide, task.wide, chunk);
    BFloat16Bits* to = states_in<BFloat16Bits>(args, task, kept[token]);
    convert_states<Simd>(task.wide, size, to);
    from = to;
  }
}

// Tokens of which the last one alone leaves its state, by chunks where there are many.
template <typename Simd, typename T>
void advance_in_place(const GatedDeltaRuleArgs& args,
                      const GatedDeltaRuleTask& task,
                      int64_t begin,
                      int64_t end,
                      float* states) {
  const int64_t state_size = args.head_k_dim * args.head_v_dim;
  const int64_t key_head = task.first_v_head / (args.num_v_heads / args.num_k_heads);
  DeltaChunk chunk;
  for (int64_t first = begin; first < end; first += kDeltaChunk) {
    const int64_t count = end - first < kDeltaChunk ? end - first : kDeltaChunk;
    const bool few = args.by_tokens || count < kDeltaChunkMinTokens;
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
void advance_tokens(const GatedDeltaRuleArgs& args,
                    const GatedDeltaRuleTask& task,
                    int64_t begin,
                    int64_t end,
                    int64_t slot) {
  const int64_t size = states_size(args, task);
  const int32_t* kept = args.batch.token_slots;
  const bool goes_on = has_history(args, task, end - begin);
  if (kept != nullptr && goes_on && kept[begin] >= 0) {
    return advance_and_keep<Simd, T>(args, task, begin, end, slot);
  }
  const int64_t last_slot = kept == nullptr ? slot : kept[end - 1];
  const bool is_wide = args.state_element == Element::kFloat32;
  float* states = is_wide ? states_in<float>(args, task, last_slot) : task.wide;
  if (!goes_on) {
    memset(states, 0, size * sizeof(float));
  } else if (!is_wide) {
    convert_states<Simd>(states_in<BFloat16Bits>(args, task, slot), size, states);
  } else if (last_slot != slot) {
    memcpy(states, states_in<float>(args, task, slot), size * sizeof(float));
  }
  advance_in_place<Simd, T>(args, task, begin, end, states);
  if (!is_wide) convert_states<Simd>(states, size, states_in<BFloat16Bits>(args, task, last_slot));
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
