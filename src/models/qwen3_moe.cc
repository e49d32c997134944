// Qwen3MoeForCausalLM: Qwen3 with a mixture of experts in most layers, or in all.
#include "models/blocks/decoder.h"
#include "models/blocks/gqa_attention.h"
#include "models/blocks/qwen_moe.h"
#include "models/blocks/requirements.h"

namespace atom {

Result<std::unique_ptr<CausalLM>> make_qwen3_moe(BuildContext& build) {
  RETURN_IF_ERROR(require_silu(build.config));
  RETURN_IF_ERROR(require_no_query_scaling(build.config));
  ASSIGN_OR_RETURN(const QwenMoe moe, read_qwen_moe(build.config, {}));
  const LayerFactory make_layer =
      [moe](BuildContext& layers, const RotaryEmbedding& rotary, int layer) -> LayerParts {
    GqaOptions attention = gqa_options(layers.config, layer);
    attention.qk_norm = true;
    return {make_sub_layer<GqaAttention>(layers, "self_attn", rotary, attention),
            make_qwen_feed_forward(layers, moe, layer)};
  };
  WeightMapping mapping = decoder_weight_mapping(build.config);
  map_experts({}, &mapping);
  return std::unique_ptr<CausalLM>(
      std::make_unique<DecoderForCausalLM>(build, DecoderSpec{make_layer, mapping}));
}

}  // namespace atom
