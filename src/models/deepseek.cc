// DeepseekV2ForCausalLM, DeepseekV3ForCausalLM (also R1, V3.1, Kimi-K2), DeepseekV32ForCausalLM and
// GlmMoeDsaForCausalLM (GLM-5): latent attention; after some dense layers, experts chosen by
// groups, and shared experts. V2 scores experts by softmax, the others by sigmoids and a correction
// bias. In V3.2 and GLM-5 an indexer selects the tokens that a query attends to.
#include "models/blocks/decoder.h"
#include "models/blocks/deepseek_experts.h"
#include "models/blocks/gated_mlp.h"
#include "models/blocks/indexer_config.h"
#include "models/blocks/mla_block.h"
#include "models/blocks/mtp_head.h"
#include "models/blocks/requirements.h"

namespace atom {
namespace {

enum class IndexerRotation { kNoIndexer, kHalves, kInterleaved };

// What a missing key means.
struct Family {
  ExpertChoice choice;
  IndexerRotation indexer = IndexerRotation::kNoIndexer;
};

constexpr Family kV2 = {{"softmax", "greedy", false}};
constexpr Family kV3 = {{"sigmoid", "noaux_tc", true}};
constexpr Family kV32 = {kV3.choice, IndexerRotation::kHalves};
constexpr Family kGlm5 = {kV3.choice, IndexerRotation::kInterleaved};

WeightMapping deepseek_weight_mapping(const ModelConfig& config) {
  WeightMapping mapping = base_weight_mapping(config);
  mapping.packed_modules_mapping = {{"gate_proj", "gate_up_proj", "gate"},
                                    {"up_proj", "gate_up_proj", "up"},
                                    {"q_a_proj", MlaBlock::kLatents, "q"},
                                    {"kv_a_proj_with_mqa", MlaBlock::kLatents, "kv"}};
  map_experts({.shared = "shared_experts"}, &mapping);
  return mapping;
}

// Names no layer where the family has none.
Result<IndexerConfig> read_indexers(const ModelConfig& config,
                                    const MlaOptions& attention,
                                    const Family& family) {
  if (family.indexer == IndexerRotation::kNoIndexer) return IndexerConfig{};
  return read_indexer_config(config, attention, family.indexer == IndexerRotation::kInterleaved);
}

Result<std::unique_ptr<CausalLM>> make_deepseek(BuildContext& build, const Family& family) {
  const ModelConfig& config = build.config;
  RETURN_IF_ERROR(require_silu(config));
  RETURN_IF_ERROR(require_no_query_scaling(config));
  ASSIGN_OR_RETURN(const MlaOptions attention, read_mla_options(config));
  ASSIGN_OR_RETURN(const DeepseekExperts experts, read_deepseek_experts(config, family.choice));
  ASSIGN_OR_RETURN(const IndexerConfig indexers, read_indexers(config, attention, family));
  const LayerFactory make_layer =
      [=](BuildContext& layers, const RotaryEmbedding& rotary, int layer) -> LayerParts {
    const MlaOptions options = indexers.with_indexer(attention, layer);
    return {make_sub_layer<MlaBlock>(layers, "self_attn", rotary, options),
            experts.has_experts[layer]
                ? make_sub_layer<MoeBlock>(layers, "mlp", experts.block)
                : make_sub_layer<GatedMLP>(
                      layers, "mlp", layers.config.intermediate_size, /*has_bias=*/false)};
  };
  DecoderSpec spec = {make_layer, deepseek_weight_mapping(config)};
  if (indexers.has_shared()) spec.num_selected = indexers.options.top_k;
  return std::unique_ptr<CausalLM>(std::make_unique<DecoderForCausalLM>(build, spec));
}

// Its layers have experts like the model's last ones, and where layers select what they attend to
// an indexer of their own, also for the drafts behind the first.
Result<std::unique_ptr<DraftModel>> make_mtp(BuildContext& build,
                                             const CausalLM& target,
                                             const Family& family) {
  const ModelConfig& config = build.config;
  ASSIGN_OR_RETURN(const int64_t num_layers,
                   read_num_mtp_layers(config, "num_nextn_predict_layers", 0));
  ASSIGN_OR_RETURN(MlaOptions attention, read_mla_options(config));
  ASSIGN_OR_RETURN(const DeepseekExperts experts, read_deepseek_experts(config, family.choice));
  ASSIGN_OR_RETURN(const IndexerConfig indexers, read_indexers(config, attention, family));
  if (!indexers.has_indexer.empty()) attention.indexer = indexers.options;
  const bool has_experts = experts.has_experts.back();
  const LayerFactory make_layer =
      [=](BuildContext& layers, const RotaryEmbedding& rotary, int) -> LayerParts {
    return {make_sub_layer<MlaBlock>(layers, "self_attn", rotary, attention),
            has_experts ? make_sub_layer<MoeBlock>(layers, "mlp", experts.block)
                        : make_sub_layer<GatedMLP>(
                              layers, "mlp", layers.config.intermediate_size, /*has_bias=*/false)};
  };
  return std::unique_ptr<DraftModel>(
      std::make_unique<MtpHead>(build, target, mtp_behind_layers(config, num_layers, make_layer)));
}

}  // namespace

Result<std::unique_ptr<CausalLM>> make_deepseek_v2(BuildContext& build) {
  return make_deepseek(build, kV2);
}

Result<std::unique_ptr<CausalLM>> make_deepseek_v3(BuildContext& build) {
  return make_deepseek(build, kV3);
}

Result<std::unique_ptr<DraftModel>> make_deepseek_v3_mtp(BuildContext& build,
                                                         const CausalLM& target) {
  return make_mtp(build, target, kV3);
}

Result<std::unique_ptr<CausalLM>> make_deepseek_v32(BuildContext& build) {
  return make_deepseek(build, kV32);
}

Result<std::unique_ptr<DraftModel>> make_deepseek_v32_mtp(BuildContext& build,
                                                          const CausalLM& target) {
  return make_mtp(build, target, kV32);
}

Result<std::unique_ptr<CausalLM>> make_glm_moe_dsa(BuildContext& build) {
  return make_deepseek(build, kGlm5);
}

Result<std::unique_ptr<DraftModel>> make_glm_moe_dsa_mtp(BuildContext& build,
                                                         const CausalLM& target) {
  return make_mtp(build, target, kGlm5);
}

}  // namespace atom
