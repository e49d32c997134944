// GptOssForCausalLM: attention with sinks, full and in a window by turns, and a mixture of experts
// with biases and a clamped gated activation in every layer.
#include "models/blocks/decoder.h"
#include "models/blocks/gqa_attention.h"
#include "models/blocks/moe_block.h"
#include "models/blocks/moe_config.h"
#include "models/blocks/requirements.h"

namespace atom {
namespace {

constexpr double kSwiGluLimit = 7.0;
constexpr double kMaxSwiGluLimit = 1e6;

Result<MoeBlockOptions> read_gpt_oss_experts(const ModelConfig& config) {
  ASSIGN_OR_RETURN(const MoeSizes sizes,
                   read_moe_sizes(config,
                                  {.num_experts = {"num_local_experts", "num_experts"},
                                   .top_k = {"num_experts_per_tok", "experts_per_token"},
                                   .intermediate_size = "intermediate_size"}));
  const ConfigReader reader = config.extension();
  ASSIGN_OR_RETURN(const double limit,
                   reader.get_double("swiglu_limit", 0, kMaxSwiGluLimit, kSwiGluLimit));
  if (limit == 0) {
    return reader.wrong("swiglu_limit", *reader.find("swiglu_limit"), "a number over 0");
  }
  MoeBlockOptions moe;
  moe.router_name = "router";
  moe.router.num_experts = sizes.num_experts;
  moe.router.has_bias = true;
  moe.router.routing = {.scores = ops::RouterScores::kSoftmaxOfChosen, .top_k = sizes.top_k};
  moe.experts.num_experts = sizes.num_experts;
  moe.experts.intermediate_size = sizes.intermediate_size;
  moe.experts.activation = {.kind = ops::GatedActivationKind::kClampedSwiGlu,
                            .is_interleaved = true,
                            .limit = static_cast<float>(limit)};
  moe.experts.has_bias = true;
  moe.experts.is_transposed = true;
  return moe;
}

}  // namespace

Result<std::unique_ptr<CausalLM>> make_gpt_oss(BuildContext& build) {
  const ModelConfig& config = build.config;
  RETURN_IF_ERROR(require_silu(config));
  RETURN_IF_ERROR(require_no_query_scaling(config));
  ASSIGN_OR_RETURN(const MoeBlockOptions moe, read_gpt_oss_experts(config));
  ASSIGN_OR_RETURN(const bool has_bias, config.extension().get_bool("attention_bias", true));
  const LayerFactory make_layer = [moe, has_bias](BuildContext& layers,
                                                  const RotaryEmbedding& rotary,
                                                  int layer) -> LayerParts {
    GqaOptions attention = gqa_options(layers.config, layer);
    attention.has_sinks = true;
    attention.qkv_bias = attention.o_proj_bias = has_bias;
    return {make_sub_layer<GqaAttention>(layers, "self_attn", rotary, attention),
            make_sub_layer<MoeBlock>(layers, "mlp", moe)};
  };
  WeightMapping mapping = decoder_weight_mapping(config);
  map_experts({}, &mapping);
  return std::unique_ptr<CausalLM>(std::make_unique<DecoderForCausalLM>(
      build, DecoderSpec{make_layer, mapping, NormWeight::kFloat32}));
}

}  // namespace atom
