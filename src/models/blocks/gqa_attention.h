// The attention block of the Llama family: projections to queries, keys and values, optional norms
// of query and key heads, rotation, grouped-query attention over the cache, an optional gate,
// output projection. With an indexer a token attends to the positions that it selects.
#pragma once

#include <memory>
#include <optional>

#include "layers/attention/attention.h"
#include "layers/attention/qsa_indexer.h"
#include "layers/linear/qkv_parallel_linear.h"
#include "layers/linear/row_parallel_linear.h"
#include "models/blocks/sub_layer.h"
#include "nn/build_context.h"

namespace atom {

struct GqaOptions {
  bool qk_norm = false;  // of every head of the queries and keys, before they are rotated
  NormWeight qk_norm_weight = NormWeight::kModelDtype;
  bool has_sinks = false;  // a logit for each query head, of which nothing is attended to
  bool qkv_bias = false;
  bool o_proj_bias = false;
  int64_t sliding_window = 0;          // 0: every earlier token
  int64_t input_size = 0;              // 0: hidden_size
  bool output_gate = false;            // by q_proj, behind each head's query
  std::optional<QsaOptions> qsa = {};  // none: a token attends to all that it sees
};

// What the configuration says of layer `layer`.
GqaOptions gqa_options(const ModelConfig& config, int layer);

class GqaAttention : public TokenMixer {
 public:
  // `rotary` outlives this.
  GqaAttention(BuildContext& build, const RotaryEmbedding& rotary, const GqaOptions& options);

  ActivationFormat wanted(int64_t num_tokens) const override;
  void forward(const Activation& x,
               const Tensor& out,
               const ForwardContext& context) const override;

 private:
  const RotaryEmbedding& rotary_;
  QKVParallelLinear qkv_proj_;
  std::unique_ptr<RMSNorm> q_norm_;      // null without
  std::unique_ptr<RMSNorm> k_norm_;      // null together with q_norm_
  std::unique_ptr<QsaIndexer> indexer_;  // null without
  Attention attention_;
  RowParallelLinear o_proj_;
};

}  // namespace atom
