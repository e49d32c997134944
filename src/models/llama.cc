// LlamaForCausalLM: Llama 2, 3, 3.1, 3.2 and models of the same shape (hidden states in the
// notation of transformers' modeling_llama).
#include "models/blocks/decoder.h"
#include "models/blocks/gated_mlp.h"
#include "models/blocks/gqa_attention.h"
#include "models/blocks/requirements.h"

namespace atom {
namespace {

LayerParts make_llama_layer(BuildContext& build, const RotaryEmbedding& rotary, int layer) {
  const ModelConfig& config = build.config;
  return {make_sub_layer<GqaAttention>(build, "self_attn", rotary, gqa_options(config, layer)),
          make_sub_layer<GatedMLP>(build, "mlp", config.intermediate_size, config.mlp_bias)};
}

}  // namespace

Result<std::unique_ptr<CausalLM>> make_llama(BuildContext& build) {
  RETURN_IF_ERROR(require_silu(build.config));
  RETURN_IF_ERROR(require_no_query_scaling(build.config));
  return std::unique_ptr<CausalLM>(std::make_unique<DecoderForCausalLM>(
      build, DecoderSpec{make_llama_layer, decoder_weight_mapping(build.config)}));
}

}  // namespace atom
