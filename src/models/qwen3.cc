// Qwen3ForCausalLM (dense): the Llama skeleton with queries and keys normalized per head before
// they are rotated.
#include "models/blocks/decoder.h"
#include "models/blocks/gated_mlp.h"
#include "models/blocks/gqa_attention.h"
#include "models/blocks/requirements.h"

namespace atom {
namespace {

LayerParts make_qwen3_layer(BuildContext& build, const RotaryEmbedding& rotary, int layer) {
  const ModelConfig& config = build.config;
  GqaOptions attention = gqa_options(config, layer);
  attention.qk_norm = true;
  return {make_sub_layer<GqaAttention>(build, "self_attn", rotary, attention),
          make_sub_layer<GatedMLP>(build, "mlp", config.intermediate_size, /*has_bias=*/false)};
}

}  // namespace

Result<std::unique_ptr<CausalLM>> make_qwen3(BuildContext& build) {
  RETURN_IF_ERROR(require_silu(build.config));
  RETURN_IF_ERROR(require_no_query_scaling(build.config));
  return std::unique_ptr<CausalLM>(std::make_unique<DecoderForCausalLM>(
      build, DecoderSpec{make_qwen3_layer, decoder_weight_mapping(build.config)}));
}

}  // namespace atom
