// Qwen3_5ForConditionalGeneration and Qwen3_5MoeForConditionalGeneration: the text models of
// Qwen3.5. Gated DeltaNets, every few layers attention with a gate on its output; dense, or experts
// beside a gated shared one.
#include "models/blocks/decoder.h"
#include "models/blocks/hybrid_layers.h"
#include "models/blocks/moe_config.h"
#include "models/blocks/qwen_moe.h"
#include "models/blocks/requirements.h"

namespace atom {
namespace {

Result<std::unique_ptr<CausalLM>> make_text_model(BuildContext& build, const QwenMoe& moe) {
  RETURN_IF_ERROR(require_silu(build.config));
  ASSIGN_OR_RETURN(const HybridConfig hybrid, read_hybrid_config(build));
  if (hybrid.qsa) {
    return unimplemented("config.json: 'index_topk' is set, but {} has no sparse attention",
                         build.config.architecture);
  }
  const LayerFactory make_layer =
      [hybrid, moe](BuildContext& layers, const RotaryEmbedding& rotary, int layer) -> LayerParts {
    return {make_hybrid_mixer(layers, rotary, hybrid, layer, DeltaNetRows::kSections),
            make_qwen_feed_forward(layers, moe, layer)};
  };
  WeightMapping mapping = hybrid_weight_mapping(build.config, DeltaNetRows::kSections);
  map_experts({.shared = "shared_expert"}, &mapping);
  return std::unique_ptr<CausalLM>(std::make_unique<DecoderForCausalLM>(
      build, DecoderSpec{make_layer, mapping, NormWeight::kZeroCentered}));
}

}  // namespace

Result<std::unique_ptr<CausalLM>> make_qwen3_5(BuildContext& build) {
  RETURN_IF_ERROR(require_intermediate_size(build.config));
  return make_text_model(build, QwenMoe{});
}

Result<std::unique_ptr<CausalLM>> make_qwen3_5_moe(BuildContext& build) {
  // Files need not say that the experts' weights add up to 1: they always do.
  ASSIGN_OR_RETURN(
      const QwenMoe moe,
      read_qwen_moe(build.config, {.has_shared_expert = true, .norm_topk_prob = true}));
  return make_text_model(build, moe);
}

Result<std::unique_ptr<DraftModel>> make_qwen3_5_mtp(BuildContext& build, const CausalLM& target) {
  return make_hybrid_mtp(build, target, "mtp_num_hidden_layers", [](BuildContext& layers) {
    return make_qwen_feed_forward(layers, QwenMoe{}, 0);
  });
}

Result<std::unique_ptr<DraftModel>> make_qwen3_5_moe_mtp(BuildContext& build,
                                                         const CausalLM& target) {
  ASSIGN_OR_RETURN(
      const QwenMoe moe,
      read_qwen_moe(build.config, {.has_shared_expert = true, .norm_topk_prob = true}));
  return make_hybrid_mtp(build, target, "mtp_num_hidden_layers", [&](BuildContext& layers) {
    return make_sub_layer<MoeBlock>(layers, "mlp", moe.experts);
  });
}

}  // namespace atom
