// Qwen3NextForCausalLM: Gated DeltaNets, every few layers attention with a gate on its output, and
// experts beside a gated shared one. With "index_topk" the attention is sparse.
#include "models/blocks/decoder.h"
#include "models/blocks/hybrid_layers.h"
#include "models/blocks/qwen_moe.h"
#include "models/blocks/requirements.h"

namespace atom {

Result<std::unique_ptr<CausalLM>> make_qwen3_next(BuildContext& build) {
  RETURN_IF_ERROR(require_silu(build.config));
  ASSIGN_OR_RETURN(const HybridConfig hybrid, read_hybrid_config(build));
  ASSIGN_OR_RETURN(const QwenMoe moe, read_qwen_moe(build.config, {.has_shared_expert = true}));
  const LayerFactory make_layer =
      [hybrid, moe](BuildContext& layers, const RotaryEmbedding& rotary, int layer) -> LayerParts {
    return {make_hybrid_mixer(layers, rotary, hybrid, layer, DeltaNetRows::kGroups),
            make_qwen_feed_forward(layers, moe, layer)};
  };
  WeightMapping mapping = hybrid_weight_mapping(build.config, DeltaNetRows::kGroups);
  map_experts({.shared = "shared_expert"}, &mapping);
  return std::unique_ptr<CausalLM>(std::make_unique<DecoderForCausalLM>(
      build, DecoderSpec{make_layer, mapping, NormWeight::kZeroCentered}));
}

Result<std::unique_ptr<DraftModel>> make_qwen3_next_mtp(BuildContext& build,
                                                        const CausalLM& target) {
  ASSIGN_OR_RETURN(const QwenMoe moe, read_qwen_moe(build.config, {.has_shared_expert = true}));
  return make_hybrid_mtp(build, target, "num_nextn_predict_layers", [&](BuildContext& layers) {
    return make_sub_layer<MoeBlock>(layers, "mlp", moe.experts);
  });
}

}  // namespace atom
