// DeepseekV2ForCausalLM, DeepseekV3ForCausalLM (also R1, V3.1, Kimi-K2), DeepseekV32ForCausalLM and
// GlmMoeDsaForCausalLM (GLM-5): latent attention; after some dense layers, experts chosen by
// groups, and shared experts. V2 scores experts by softmax, the others by sigmoids and a correction
// bias. In V3.2 and GLM-5 an indexer selects the tokens that a query attends to.
#include "models/blocks/decoder.h"
#include "models/blocks/deepseek_experts.h"
#include "models/blocks/gated_mlp.h"
#include "models/blocks/indexer_config.h"
#include "models/blocks/mla_block.h"
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
                                    {"up_proj", "gate_up_proj", "up"}};
  map_experts({.shared = "shared_experts"}, &mapping);
  return mapping;
}

Result<std::unique_ptr<CausalLM>> make_deepseek(BuildContext& build, const Family& family) {
  const ModelConfig& config = build.config;
  RETURN_IF_ERROR(require_silu(config));
  RETURN_IF_ERROR(require_no_query_scaling(config));
  ASSIGN_OR_RETURN(const MlaOptions attention, read_mla_options(config));
  ASSIGN_OR_RETURN(const DeepseekExperts experts, read_deepseek_experts(config, family.choice));
  IndexerConfig indexers;
  if (family.indexer != IndexerRotation::kNoIndexer) {
    const bool interleaved = family.indexer == IndexerRotation::kInterleaved;
    ASSIGN_OR_RETURN(indexers, read_indexer_config(config, attention, interleaved));
  }
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

}  // namespace

Result<std::unique_ptr<CausalLM>> make_deepseek_v2(BuildContext& build) {
  return make_deepseek(build, kV2);
}

Result<std::unique_ptr<CausalLM>> make_deepseek_v3(BuildContext& build) {
  return make_deepseek(build, kV3);
}

Result<std::unique_ptr<CausalLM>> make_deepseek_v32(BuildContext& build) {
  return make_deepseek(build, kV32);
}

Result<std::unique_ptr<CausalLM>> make_glm_moe_dsa(BuildContext& build) {
  return make_deepseek(build, kGlm5);
}

}  // namespace atom
