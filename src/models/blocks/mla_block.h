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
#include "nn/weight_mapping.h"

namespace atom {

struct MlaOptions {
  MlaSizes sizes;
  int64_t q_lora_rank = 0;  // 0: queries come straight from the input, by "q_proj"
  bool has_bias = false;    // of q_a_proj, kv_a_proj_with_mqa and o_proj
  // Both latents come from one multiplication, "fused_qkv_a_proj".
  bool fuses_latents = false;
  // With q_lora_rank only. Without, a query attends to what the last layer before that has one
  // selected, or to all earlier tokens.
  std::optional<DsaOptions> indexer;
  bool shares_selection = false;
};

// What config.json says of it. Latents are fused where q_a_proj and kv_a_proj_with_mqa are
// quantized alike in all layers, those for drafts included, and blocks of scales end between them.
Result<MlaOptions> read_mla_options(const ModelConfig& config);

// Adds the parts of "fused_qkv_a_proj", if there is one.
void map_latents(const MlaOptions& options, WeightMapping* mapping);

class MlaBlock : public TokenMixer {
 public:
  // `rotary` outlives this.
  MlaBlock(BuildContext& build, const RotaryEmbedding& rotary, const MlaOptions& options);

  ActivationFormat wanted() const override;
  void forward(const Activation& x,
               const Tensor& out,
               const ForwardContext& context) const override;

 private:
  Tensor selected(const Activation& x,
                  const Activation& latent,
                  const ForwardContext& context) const;
  struct Latents {
    Tensor of_queries;  // [T, q_lora_rank]; undefined with q_lora_rank 0
    Tensor of_keys;     // [T, rank], for the norm
    Tensor rows;        // [T, 1, row_size]: these with the part that is rotated
  };
  Latents project_down(const Activation& x, const ForwardContext& context) const;

  int64_t rank_;
  bool shares_selection_;
  int64_t q_lora_rank_;
  std::unique_ptr<ReplicatedLinear> fused_a_proj_;  // null where latents are not fused
  std::unique_ptr<ReplicatedLinear> q_a_proj_;      // null where they are, or with q_lora_rank 0
  std::unique_ptr<RMSNorm> q_a_layernorm_;          // null with q_lora_rank 0
  std::unique_ptr<DsaIndexer> indexer_;             // null without
  MergedColumnParallelLinear q_b_proj_;             // "q_proj" with q_lora_rank 0
  std::unique_ptr<ReplicatedLinear> kv_a_proj_;     // null where latents are fused
  RMSNorm kv_a_layernorm_;
  MlaAttention attention_;
  RowParallelLinear o_proj_;
};

}  // namespace atom
