#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/gated_delta_rule/gated_delta_rule_gates.h"
#include "ops/gated_delta_rule/gated_delta_rule_kernels.h"
#include "tensor/dispatch.h"

namespace atom::ops {
namespace {

template <typename T>
std::vector<float> l2_normalized(const T* x, int64_t size, float scale) {
  float squares = 0;
  for (int64_t i = 0; i < size; ++i) squares += to_float(x[i]) * to_float(x[i]);
  const float factor = scale / std::sqrt(squares + 1e-6f);
  std::vector<float> out(size);
  for (int64_t i = 0; i < size; ++i) out[i] = to_float(x[i]) * factor;
  return out;
}

// One token of one value head: the recurrence as it stands in the contract.
template <typename T>
void advance(const GatedDeltaRuleArgs& args, int64_t token, int64_t head, float* state) {
  const int64_t dk = args.head_k_dim, dv = args.head_v_dim;
  const int64_t key_head = head / (args.num_v_heads / args.num_k_heads);
  const T* queries = static_cast<const T*>(args.qkv) + token * args.qkv_stride;
  const T* keys = queries + args.num_k_heads * dk;
  const T* v = keys + args.num_k_heads * dk + head * dv;
  const float q_scale = 1.0f / std::sqrt(static_cast<float>(dk));
  const auto q = l2_normalized(queries + key_head * dk, dk, q_scale);
  const auto k = l2_normalized(keys + key_head * dk, dk, 1.0f);
  T* out = static_cast<T*>(args.out) + token * args.out_stride + head * dv;
  const float a = to_float(static_cast<const T*>(args.a)[token * args.a_stride + head]);
  const float b = to_float(static_cast<const T*>(args.b)[token * args.b_stride + head]);
  const float decay = std::exp(log_decay(a, args.a_log[head], args.dt_bias[head]));
  const float beta = write_strength(b);
  for (int64_t i = 0; i < dk * dv; ++i) state[i] *= decay;
  std::vector<float> update(dv, 0.0f), result(dv, 0.0f);
  for (int64_t d = 0; d < dk; ++d) {
    for (int64_t j = 0; j < dv; ++j) update[j] += k[d] * state[d * dv + j];
  }
  for (int64_t j = 0; j < dv; ++j) update[j] = beta * (to_float(v[j]) - update[j]);
  for (int64_t d = 0; d < dk; ++d) {
    for (int64_t j = 0; j < dv; ++j) {
      state[d * dv + j] += k[d] * update[j];
      result[j] += q[d] * state[d * dv + j];
    }
  }
  for (int64_t j = 0; j < dv; ++j) out[j] = from_float<T>(result[j]);
}

template <typename T, typename State>
void advance_all(const GatedDeltaRuleArgs& args, int64_t sequence, int64_t head) {
  const int64_t begin = args.batch.query_start[sequence];
  const int64_t end = args.batch.query_start[sequence + 1];
  const int64_t slot = args.batch.state_slots[sequence];
  if (begin == end) return;
  if (slot < 0) {
    for (int64_t token = begin; token < end; ++token) {
      T* out = static_cast<T*>(args.out) + token * args.out_stride + head * args.head_v_dim;
      std::fill_n(out, args.head_v_dim, T{});
    }
    return;
  }
  const int64_t state_size = args.head_k_dim * args.head_v_dim;
  const auto state_in = [&](int64_t at) {
    return static_cast<State*>(args.state) + (at * args.num_v_heads + head) * state_size;
  };
  std::vector<float> state(state_size, 0.0f);
  if (args.batch.seq_lens[sequence] > end - begin) {
    const State* from = state_in(slot);
    for (int64_t i = 0; i < state_size; ++i) state[i] = to_float(from[i]);
  }
  const auto leave_in = [&](int64_t at) {
    State* to = state_in(at);
    for (int64_t i = 0; i < state_size; ++i) {
      to[i] = from_float<State>(state[i]);
      state[i] = to_float(to[i]);
    }
  };
  const int32_t* kept = args.batch.token_slots;
  for (int64_t token = begin; token < end; ++token) {
    advance<T>(args, token, head, state.data());
    if (kept != nullptr && kept[token] >= 0) leave_in(kept[token]);
  }
  if (kept == nullptr) leave_in(slot);
}

}  // namespace

void gated_delta_rule_reference(const GatedDeltaRuleArgs& args, const GatedDeltaRuleTask& task) {
  dispatch_float(static_cast<DType>(args.element), [&]<typename T>(TypeTag<T>) {
    for (int64_t i = 0; i < task.num_v_heads; ++i) {
      const int64_t head = task.first_v_head + i;
      if (args.state_element == Element::kFloat32) {
        advance_all<T, float>(args, task.sequence, head);
      } else {
        advance_all<T, BFloat16>(args, task.sequence, head);
      }
    }
  });
}

}  // namespace atom::ops
