// The attention block of DeepSeek V2 and later: queries, straight from the input or through a
// latent of their own, one latent row for the keys and values of all heads, latent attention,
// to all earlier tokens or to those that an indexer selects, output projection.
#pragma once

#include <memory>
#include <optional>

#include "layers/attention/dsa_indexer.h"
#include "layers/attention/mla_attention.h"
#include "layers/linear/merged_column_parallel_linear.h"
#include "layers/linear/replicated_linear.h"
#include "layers/linear/row_parallel_linear.h"
#include "layers/rms_norm.h"
#include "models/blocks/sub_layer.h"
#include "nn/build_context.h"

namespace atom {

struct MlaOptions {
  MlaSizes sizes;
  int64_t q_lora_rank = 0;  // 0: queries come straight from the input, by "q_proj"
  bool has_bias = false;    // of q_a_proj, kv_a_proj_with_mqa and o_proj
  // With q_lora_rank only. Without, a query attends to what the last layer before that has one
  // selected, or to all earlier tokens.
  std::optional<DsaOptions> indexer;
  bool shares_selection = false;
};

// What config.json says of it.
Result<MlaOptions> read_mla_options(const ModelConfig& config);

class MlaBlock : public TokenMixer {
 public:
  // What q_a_proj and kv_a_proj_with_mqa are where they are multiplied as one, their slices "q" and
  // "kv". They are quantized alike then.
  static constexpr const char* kLatents = "qkv_a_proj";

  // `rotary` outlives this.
  MlaBlock(BuildContext& build, const RotaryEmbedding& rotary, const MlaOptions& options);

  ActivationFormat wanted(int64_t num_tokens) const override;
  void forward(const Activation& x,
               const Tensor& out,
               const ForwardContext& context) const override;

 private:
  // Of a token, before norms.
  struct Latents {
    Tensor q;   // [num_tokens, q_lora_rank]; undefined without one
    Tensor kv;  // [num_tokens, 1, row_size]
  };
  Latents latents(const Activation& x, const ForwardContext& context) const;
  Tensor selected(const Activation& x,
                  const Activation& latent,
                  const ForwardContext& context) const;

  int64_t q_lora_rank_, row_size_;
  bool shares_selection_;
  bool input_codes_, latent_codes_;               // norms leave codes for projections behind them
  std::unique_ptr<ReplicatedLinear> qkv_a_proj_;  // or the two that follow
  std::unique_ptr<ReplicatedLinear> q_a_proj_;    // null with q_lora_rank 0, too
  std::unique_ptr<ReplicatedLinear> kv_a_proj_;
  std::unique_ptr<RMSNorm> q_a_layernorm_;  // null with q_lora_rank 0
  std::unique_ptr<DsaIndexer> indexer_;     // null without
  MergedColumnParallelLinear q_b_proj_;     // "q_proj" with q_lora_rank 0
  RMSNorm kv_a_layernorm_;
  MlaAttention attention_;
  RowParallelLinear o_proj_;
};

}  // namespace atom
