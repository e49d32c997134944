// DeepseekV2ForCausalLM and DeepseekV3ForCausalLM (also R1, V3.1, Kimi-K2): latent attention; after
// some dense layers, experts chosen by groups, and shared experts. V2 scores experts by softmax, V3
// by sigmoids and a correction bias.
#include "models/blocks/decoder.h"
#include "models/blocks/gated_mlp.h"
#include "models/blocks/mla_block.h"
#include "models/blocks/moe_block.h"
#include "models/blocks/moe_config.h"
#include "models/blocks/mtp_head.h"
#include "models/blocks/requirements.h"

namespace atom {
namespace {

struct Defaults {
  const char* scoring;
  const char* top_k_method;
  bool normalizes;
};
constexpr Defaults kV2 = {"softmax", "greedy", false};
constexpr Defaults kV3 = {"sigmoid", "noaux_tc", true};

Status read_scores(const ConfigReader& reader, const Defaults& defaults, MoeRouterOptions* router) {
  ASSIGN_OR_RETURN(const std::string scoring, reader.get_string("scoring_func", defaults.scoring));
  ASSIGN_OR_RETURN(const std::string method,
                   reader.get_string("topk_method", defaults.top_k_method));
  if (scoring != "softmax" && scoring != "sigmoid") {
    return unimplemented(
        "config.json: 'scoring_func' \"{}\"; atom computes \"softmax\" and "
        "\"sigmoid\"",
        scoring);
  }
  if (method != "greedy" && method != "group_limited_greedy" && method != "noaux_tc") {
    return unimplemented(
        "config.json: 'topk_method' \"{}\"; atom computes \"greedy\", "
        "\"group_limited_greedy\" and \"noaux_tc\"",
        method);
  }
  router->has_selection_bias = method == "noaux_tc";
  router->routing.scores =
      scoring == "sigmoid" ? ops::RouterScores::kSigmoid : ops::RouterScores::kSoftmax;
  router->routing.group_score =
      method == "noaux_tc" ? ops::GroupScore::kTwoLargest : ops::GroupScore::kLargest;
  // "greedy" chooses among all experts, whatever groups the file speaks of.
  if (method == "greedy") router->routing.num_groups = router->routing.num_top_groups = 1;
  return {};
}

Result<MoeBlockOptions> read_experts(const ModelConfig& config, const Defaults& defaults) {
  const ConfigReader reader = config.extension();
  ASSIGN_OR_RETURN(const MoeSizes sizes,
                   read_moe_sizes(config,
                                  {.num_experts = {"n_routed_experts"},
                                   .top_k = {"num_experts_per_tok"},
                                   .intermediate_size = "moe_intermediate_size"}));
  ASSIGN_OR_RETURN(const int64_t num_shared,
                   reader.get_int("n_shared_experts", 0, kMaxSharedExperts, 0));
  ASSIGN_OR_RETURN(const bool normalizes, reader.get_bool("norm_topk_prob", defaults.normalizes));
  ASSIGN_OR_RETURN(const double scale,
                   reader.get_double("routed_scaling_factor", 0, kMaxRoutedScale, 1.0));
  MoeBlockOptions moe;
  moe.router.num_experts = sizes.num_experts;
  moe.router.routing = {.top_k = sizes.top_k,
                        .normalizes = normalizes,
                        .scale = static_cast<float>(scale),
                        .num_shared = num_shared};
  RETURN_IF_ERROR(read_expert_groups(config, sizes.num_experts, &moe.router.routing));
  RETURN_IF_ERROR(read_scores(reader, defaults, &moe.router));
  moe.experts.num_experts = sizes.num_experts;
  moe.experts.num_shared = num_shared;
  moe.experts.intermediate_size = sizes.intermediate_size;
  return moe;
}

// Layer `layer`, those for multi-token prediction being numbered behind the model's.
Result<LayerFactory> read_layers(const ModelConfig& config, const Defaults& defaults) {
  RETURN_IF_ERROR(require_silu(config));
  RETURN_IF_ERROR(require_no_query_scaling(config));
  ASSIGN_OR_RETURN(const MlaOptions attention, read_mla_options(config));
  const ConfigReader reader = config.extension();
  const int64_t num_layers = config.num_hidden_layers;
  int64_t num_dense = num_layers, frequency = 1;
  MoeBlockOptions moe;
  if (reader.has("n_routed_experts")) {
    ASSIGN_OR_RETURN(moe, read_experts(config, defaults));
    ASSIGN_OR_RETURN(num_dense, reader.get_int("first_k_dense_replace", 0, num_layers, 0));
    ASSIGN_OR_RETURN(frequency, reader.get_int("moe_layer_freq", 1, num_layers, 1));
  }
  if (num_dense > 0 || frequency > 1) RETURN_IF_ERROR(require_intermediate_size(config));
  const LayerFactory make_layer =
      [=](BuildContext& layers, const RotaryEmbedding& rotary, int layer) -> LayerParts {
    const bool has_experts = layer >= num_dense && layer % frequency == 0;
    return {make_sub_layer<MlaBlock>(layers, "self_attn", rotary, attention),
            has_experts ? make_sub_layer<MoeBlock>(layers, "mlp", moe)
                        : make_sub_layer<GatedMLP>(
                              layers, "mlp", layers.config.intermediate_size, /*has_bias=*/false)};
  };
  return make_layer;
}

Result<std::unique_ptr<CausalLM>> make_deepseek(BuildContext& build, const Defaults& defaults) {
  const ModelConfig& config = build.config;
  ASSIGN_OR_RETURN(const LayerFactory make_layer, read_layers(config, defaults));
  WeightMapping mapping = base_weight_mapping(config);
  mapping.packed_modules_mapping = {{"gate_proj", "gate_up_proj", "gate"},
                                    {"up_proj", "gate_up_proj", "up"}};
  map_experts({.shared = "shared_experts"}, &mapping);
  return std::unique_ptr<CausalLM>(
      std::make_unique<DecoderForCausalLM>(build, DecoderSpec{make_layer, mapping}));
}

}  // namespace

Result<std::unique_ptr<CausalLM>> make_deepseek_v2(BuildContext& build) {
  return make_deepseek(build, kV2);
}

Result<std::unique_ptr<CausalLM>> make_deepseek_v3(BuildContext& build) {
  return make_deepseek(build, kV3);
}

Result<std::unique_ptr<DraftModel>> make_deepseek_mtp(BuildContext& build, const CausalLM& target) {
  const ModelConfig& config = build.config;
  ASSIGN_OR_RETURN(const int64_t num_layers,
                   read_num_mtp_layers(config, "num_nextn_predict_layers", 0));
  ASSIGN_OR_RETURN(const LayerFactory make_layer, read_layers(config, kV3));
  const int first = config.num_hidden_layers;
  return std::unique_ptr<DraftModel>(std::make_unique<MtpHead>(
      build,
      target,
      mtp_behind_layers(
          config, num_layers, [=](BuildContext& layers, const RotaryEmbedding& rotary, int layer) {
            return make_layer(layers, rotary, first + layer);
          })));
}

}  // namespace atom
