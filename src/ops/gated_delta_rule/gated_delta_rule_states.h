// Inside gated_delta_rule on a CPU: the states of a task's heads.
#pragma once

#include "ops/gated_delta_rule/gated_delta_rule_kernels.h"

namespace atom::ops {

// The states of the task's heads in a slot.
template <typename State>
static inline State* states_in(const GatedDeltaRuleArgs& args,
                               const GatedDeltaRuleTask& task,
                               int64_t slot) {
  const int64_t state_size = args.head_k_dim * args.head_v_dim;
  return static_cast<State*>(args.state) +
         (slot * args.num_v_heads + task.first_v_head) * state_size;
}

static inline int64_t states_size(const GatedDeltaRuleArgs& args, const GatedDeltaRuleTask& task) {
  return task.num_v_heads * args.head_k_dim * args.head_v_dim;
}

static inline bool has_history(const GatedDeltaRuleArgs& args,
                               const GatedDeltaRuleTask& task,
                               int64_t num_tokens) {
  return args.batch.seq_lens[task.sequence] > num_tokens;
}

// Whole vectors, rounded to the nearest.
template <typename Simd, typename From, typename To>
void convert_states(const From* from, int64_t size, To* to) {
  for (int64_t i = 0; i < size; i += Simd::kWidth) Simd::store(to + i, Simd::load(from + i));
}

}  // namespace atom::ops
