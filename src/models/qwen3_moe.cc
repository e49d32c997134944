// Qwen3MoeForCausalLM: Qwen3 with a mixture of experts in most layers, or in all.
#include <algorithm>

#include "models/blocks/decoder.h"
#include "models/blocks/gated_mlp.h"
#include "models/blocks/gqa_attention.h"
#include "models/blocks/moe_block.h"
#include "models/blocks/moe_config.h"
#include "models/blocks/requirements.h"

namespace atom {
namespace {

// Which layers have experts: layer i unless it is listed, and of the others every `step`-th.
struct SparseLayers {
  std::vector<int64_t> dense;
  int64_t step = 1;

  bool contains(int layer) const {
    return (layer + 1) % step == 0 && std::ranges::find(dense, layer) == dense.end();
  }
};

Result<SparseLayers> read_sparse_layers(const ModelConfig& config) {
  const ConfigReader reader = config.extension();
  const int64_t num_layers = config.num_hidden_layers;
  SparseLayers sparse;
  ASSIGN_OR_RETURN(
      sparse.dense,
      reader.get_ints("mlp_only_layers", 0, num_layers - 1, static_cast<size_t>(num_layers)));
  ASSIGN_OR_RETURN(sparse.step, reader.get_int("decoder_sparse_step", 1, INT32_MAX, 1));
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!sparse.contains(layer)) RETURN_IF_ERROR(require_intermediate_size(config));
  }
  return sparse;
}

Result<MoeBlockOptions> read_qwen3_moe_experts(const ModelConfig& config) {
  ASSIGN_OR_RETURN(const MoeSizes sizes,
                   read_moe_sizes(config,
                                  {.num_experts = {"num_experts", "num_local_experts"},
                                   .top_k = {"num_experts_per_tok"},
                                   .intermediate_size = "moe_intermediate_size"}));
  ASSIGN_OR_RETURN(const bool normalizes, config.extension().get_bool("norm_topk_prob", false));
  MoeBlockOptions moe;
  moe.router.num_experts = sizes.num_experts;
  moe.router.routing = {.top_k = sizes.top_k, .normalizes = normalizes};
  moe.experts.num_experts = sizes.num_experts;
  moe.experts.intermediate_size = sizes.intermediate_size;
  return moe;
}

}  // namespace

Result<std::unique_ptr<CausalLM>> make_qwen3_moe(BuildContext& build) {
  const ModelConfig& config = build.config;
  RETURN_IF_ERROR(require_silu(config));
  RETURN_IF_ERROR(require_no_query_scaling(config));
  ASSIGN_OR_RETURN(const SparseLayers sparse, read_sparse_layers(config));
  ASSIGN_OR_RETURN(const MoeBlockOptions moe, read_qwen3_moe_experts(config));
  const LayerFactory make_layer =
      [sparse, moe](BuildContext& layers, const RotaryEmbedding& rotary, int layer) -> LayerParts {
    GqaOptions attention = gqa_options(layers.config, layer);
    attention.qk_norm = true;
    return {make_sub_layer<GqaAttention>(layers, "self_attn", rotary, attention),
            sparse.contains(layer)
                ? make_sub_layer<MoeBlock>(layers, "mlp", moe)
                : make_sub_layer<GatedMLP>(
                      layers, "mlp", layers.config.intermediate_size, /*has_bias=*/false)};
  };
  WeightMapping mapping = decoder_weight_mapping(config);
  map_experts({}, &mapping);
  return std::unique_ptr<CausalLM>(
      std::make_unique<DecoderForCausalLM>(build, DecoderSpec{make_layer, mapping}));
}

}  // namespace atom
