// The attention block of the Llama family: projections to queries, keys and values, optional norms
// of query and key heads, rotation, grouped-query attention over the cache, output projection.
#pragma once

#include <memory>

#include "layers/attention/attention.h"
#include "layers/linear/qkv_parallel_linear.h"
#include "layers/linear/row_parallel_linear.h"
#include "models/blocks/sub_layer.h"
#include "nn/build_context.h"

namespace atom {

struct GqaOptions {
  bool qk_norm = false;  // of every head of the queries and keys, before they are rotated
  bool qkv_bias = false;
  bool o_proj_bias = false;
  int64_t sliding_window = 0;  // 0: every earlier token
};

// What the configuration says of layer `layer`.
GqaOptions gqa_options(const ModelConfig& config, int layer);

class GqaAttention : public TokenMixer {
 public:
  // `rotary` outlives this.
  GqaAttention(BuildContext& build, const RotaryEmbedding& rotary, const GqaOptions& options);

  ActivationFormat wanted() const override { return qkv_proj_.wanted(); }
  void forward(const Activation& x,
               const Tensor& out,
               const ForwardContext& context) const override;

 private:
  const RotaryEmbedding& rotary_;
  QKVParallelLinear qkv_proj_;
  std::unique_ptr<RMSNorm> q_norm_;  // null without
  std::unique_ptr<RMSNorm> k_norm_;  // null together with q_norm_
  Attention attention_;
  RowParallelLinear o_proj_;
};

}  // namespace atom
