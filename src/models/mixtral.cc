// MixtralForCausalLM: the Llama skeleton with a mixture of experts in every layer.
#include "models/blocks/decoder.h"
#include "models/blocks/gqa_attention.h"
#include "models/blocks/moe_block.h"
#include "models/blocks/moe_config.h"
#include "models/blocks/requirements.h"

namespace atom {
namespace {

WeightMapping mixtral_weight_mapping(const ModelConfig& config) {
  WeightMapping mapping = decoder_weight_mapping(config);
  // transformers 5 calls the block "mlp".
  mapping.renames.push_back({RenameRule::Match::kContains, ".mlp.", ".block_sparse_moe."});
  map_experts({.gate = "w1", .up = "w3", .down = "w2", .shared = ""}, &mapping);
  return mapping;
}

}  // namespace

Result<std::unique_ptr<CausalLM>> make_mixtral(BuildContext& build) {
  const ModelConfig& config = build.config;
  RETURN_IF_ERROR(require_silu(config));
  RETURN_IF_ERROR(require_no_query_scaling(config));
  ASSIGN_OR_RETURN(const MoeSizes sizes,
                   read_moe_sizes(config,
                                  {.num_experts = {"num_local_experts", "num_experts"},
                                   .top_k = {"num_experts_per_tok"},
                                   .intermediate_size = "intermediate_size"}));
  MoeBlockOptions moe;
  moe.router.num_experts = sizes.num_experts;
  moe.router.routing = {.top_k = sizes.top_k, .normalizes = true};
  moe.experts.num_experts = sizes.num_experts;
  moe.experts.intermediate_size = sizes.intermediate_size;
  const LayerFactory make_layer =
      [moe](BuildContext& layers, const RotaryEmbedding& rotary, int layer) -> LayerParts {
    return {make_sub_layer<GqaAttention>(
                layers, "self_attn", rotary, gqa_options(layers.config, layer)),
            make_sub_layer<MoeBlock>(layers, "block_sparse_moe", moe)};
  };
  return std::unique_ptr<CausalLM>(std::make_unique<DecoderForCausalLM>(
      build, DecoderSpec{make_layer, mixtral_weight_mapping(config)}));
}

}  // namespace atom
