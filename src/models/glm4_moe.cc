// Glm4MoeForCausalLM (GLM-4.5, 4.6, 4.7): grouped-query attention with partial rotation; after some
// dense layers, experts chosen by sigmoid scores and a correction bias, and shared experts.
#include <algorithm>

#include "models/blocks/decoder.h"
#include "models/blocks/gated_mlp.h"
#include "models/blocks/gqa_attention.h"
#include "models/blocks/moe_block.h"
#include "models/blocks/moe_config.h"
#include "models/blocks/mtp_head.h"
#include "models/blocks/requirements.h"

namespace atom {
namespace {

Result<MoeBlockOptions> read_glm4_moe_experts(const ModelConfig& config) {
  const ConfigReader reader = config.extension();
  ASSIGN_OR_RETURN(const MoeSizes sizes,
                   read_moe_sizes(config,
                                  {.num_experts = {"n_routed_experts", "num_experts"},
                                   .top_k = {"num_experts_per_tok"},
                                   .intermediate_size = "moe_intermediate_size"}));
  ASSIGN_OR_RETURN(const int64_t num_shared,
                   reader.get_int("n_shared_experts", 0, kMaxSharedExperts, 1));
  ASSIGN_OR_RETURN(const bool normalizes, reader.get_bool("norm_topk_prob", true));
  ASSIGN_OR_RETURN(const double scale,
                   reader.get_double("routed_scaling_factor", 0, kMaxRoutedScale, 1.0));
  MoeBlockOptions moe;
  moe.router.num_experts = sizes.num_experts;
  moe.router.has_selection_bias = true;
  moe.router.routing = {.scores = ops::RouterScores::kSigmoid,
                        .top_k = sizes.top_k,
                        .group_score = ops::GroupScore::kTwoLargest,
                        .normalizes = normalizes,
                        .scale = static_cast<float>(scale),
                        .num_shared = num_shared};
  RETURN_IF_ERROR(read_expert_groups(config, sizes.num_experts, &moe.router.routing));
  moe.experts.num_experts = sizes.num_experts;
  moe.experts.num_shared = num_shared;
  moe.experts.intermediate_size = sizes.intermediate_size;
  return moe;
}

// Layer `layer`, those for multi-token prediction being numbered behind the model's.
Result<LayerFactory> read_glm4_moe_layers(const ModelConfig& config) {
  RETURN_IF_ERROR(require_silu(config));
  RETURN_IF_ERROR(require_no_query_scaling(config));
  ASSIGN_OR_RETURN(const MoeBlockOptions moe, read_glm4_moe_experts(config));
  const ConfigReader reader = config.extension();
  ASSIGN_OR_RETURN(const int64_t num_dense,
                   reader.get_int("first_k_dense_replace", 0, config.num_hidden_layers, 1));
  if (num_dense > 0) RETURN_IF_ERROR(require_intermediate_size(config));
  ASSIGN_OR_RETURN(const bool qk_norm, reader.get_bool("use_qk_norm", false));
  const LayerFactory make_layer = [moe, num_dense, qk_norm](BuildContext& layers,
                                                            const RotaryEmbedding& rotary,
                                                            int layer) -> LayerParts {
    const int last = layers.config.num_hidden_layers - 1;
    GqaOptions attention = gqa_options(layers.config, std::min(layer, last));
    attention.qk_norm = qk_norm;
    attention.o_proj_bias = false;  // whatever attention_bias says
    return {make_sub_layer<GqaAttention>(layers, "self_attn", rotary, attention),
            layer < num_dense
                ? make_sub_layer<GatedMLP>(
                      layers, "mlp", layers.config.intermediate_size, /*has_bias=*/false)
                : make_sub_layer<MoeBlock>(layers, "mlp", moe)};
  };
  return make_layer;
}

}  // namespace

Result<std::unique_ptr<CausalLM>> make_glm4_moe(BuildContext& build) {
  const ModelConfig& config = build.config;
  ASSIGN_OR_RETURN(const LayerFactory make_layer, read_glm4_moe_layers(config));
  WeightMapping mapping = decoder_weight_mapping(config);
  map_experts({.shared = "shared_experts"}, &mapping);
  return std::unique_ptr<CausalLM>(
      std::make_unique<DecoderForCausalLM>(build, DecoderSpec{make_layer, mapping}));
}

Result<std::unique_ptr<DraftModel>> make_glm4_moe_mtp(BuildContext& build, const CausalLM& target) {
  const ModelConfig& config = build.config;
  ASSIGN_OR_RETURN(const int64_t num_layers,
                   read_num_mtp_layers(config, "num_nextn_predict_layers", 1));
  ASSIGN_OR_RETURN(const LayerFactory make_layer, read_glm4_moe_layers(config));
  const int first = config.num_hidden_layers;
  return std::unique_ptr<DraftModel>(std::make_unique<MtpHead>(
      build,
      target,
      mtp_behind_layers(
          config, num_layers, [=](BuildContext& layers, const RotaryEmbedding& rotary, int layer) {
            return make_layer(layers, rotary, first + layer);
          })));
}

}  // namespace atom
