// Multi-head attention over the paged KV cache (MHA, GQA and MQA), causal, with an optional sliding
// window and optional sinks.
#pragma once

#include <memory>

#include "layers/activation.h"
#include "layers/attention/kv_scales.h"
#include "layers/rms_norm.h"
#include "layers/rotary_embedding.h"
#include "nn/build_context.h"
#include "nn/forward_context.h"
#include "nn/module.h"

namespace atom {

// What the heads of queries and keys go through before they meet: norms, if any, then rotation.
struct QkPreparation {
  const RotaryEmbedding& rotary;
  const RMSNorm* q_norm = nullptr;
  const RMSNorm* k_norm = nullptr;  // null together with q_norm
};

// What some models add to the attention of a step; undefined: they do not.
struct AttentionExtras {
  Tensor indices;  // [num_tokens, top_k] int32: the positions that a token attends to, then -1
  Tensor gate;     // [num_tokens, num_heads, head_dim]: its sigmoid multiplies the output
  // What is wanted of a gated output.
  ActivationFormat format = {};
};

// Heads are those of this rank.
struct AttentionOptions {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t sliding_window = 0;  // 0: every earlier token
  // "sinks": for each query head a logit that takes part in the softmax and has no value.
  bool has_sinks = false;
};

class Attention : public Module {
 public:
  // Registers the layer's KV cache with `build`.
  Attention(BuildContext& build, const AttentionOptions& options);

  // Prepares q and k, writes k and v into the cache, then attends. q [num_tokens, num_heads,
  // head_dim], in place, k and v [num_tokens, num_kv_heads, head_dim], k unspecified afterwards
  // -> in the workspace, [num_tokens, num_heads * head_dim]: codes of a gated output when
  // extras.format asks for them alone, else rows.
  Activation forward(const Tensor& q,
                     const Tensor& k,
                     const Tensor& v,
                     const QkPreparation& preparation,
                     const ForwardContext& context,
                     const AttentionExtras& extras = {}) const;

 private:
  void prepare_and_store(const Tensor& q,
                         const Tensor& k,
                         const Tensor& v,
                         const QkPreparation& preparation,
                         const ForwardContext& context) const;
  void attend(const Tensor& q, const Tensor& out, const ForwardContext& context) const;
  void attend_to(const Tensor& indices,
                 const Tensor& q,
                 const Tensor& out,
                 const ForwardContext& context) const;

  float k_scale() const { return kv_scales_ == nullptr ? 1.0f : kv_scales_->k(); }
  float v_scale() const { return kv_scales_ == nullptr ? 1.0f : kv_scales_->v(); }

  CacheHandle cache_;  // planes k and v, [num_kv_heads, head_dim] each
  float scale_;
  int64_t sliding_window_;
  bool prepares_in_one_;  // by one operator instead of one for each part
  bool gate_leaves_codes_;
  std::unique_ptr<KVScales> kv_scales_;  // null unless the cache is in FP8
  std::unique_ptr<Parameter> sinks_;     // [num_heads] float32; null without
};

}  // namespace atom
