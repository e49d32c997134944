#include "models/blocks/deepseek_experts.h"

#include <algorithm>

#include "models/blocks/moe_config.h"

namespace atom {
namespace {

constexpr size_t kMaxLayersOfModel = 4096;

Status read_scores(const ConfigReader& reader,
                   const ExpertChoice& choice,
                   MoeRouterOptions* router) {
  ASSIGN_OR_RETURN(const std::string scoring, reader.get_string("scoring_func", choice.scoring));
  ASSIGN_OR_RETURN(const std::string method, reader.get_string("topk_method", choice.top_k_method));
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

Result<MoeBlockOptions> read_experts_block(const ModelConfig& config, const ExpertChoice& choice) {
  const ConfigReader reader = config.extension();
  ASSIGN_OR_RETURN(const MoeSizes sizes,
                   read_moe_sizes(config,
                                  {.num_experts = {"n_routed_experts"},
                                   .top_k = {"num_experts_per_tok"},
                                   .intermediate_size = "moe_intermediate_size"}));
  ASSIGN_OR_RETURN(const int64_t num_shared,
                   reader.get_int("n_shared_experts", 0, kMaxSharedExperts, 0));
  ASSIGN_OR_RETURN(const bool normalizes, reader.get_bool("norm_topk_prob", choice.normalizes));
  ASSIGN_OR_RETURN(const double scale,
                   reader.get_double("routed_scaling_factor", 0, kMaxRoutedScale, 1.0));
  MoeBlockOptions block;
  block.router.num_experts = sizes.num_experts;
  block.router.routing = {.top_k = sizes.top_k,
                          .normalizes = normalizes,
                          .scale = static_cast<float>(scale),
                          .num_shared = num_shared};
  RETURN_IF_ERROR(read_expert_groups(config, sizes.num_experts, &block.router.routing));
  RETURN_IF_ERROR(read_scores(reader, choice, &block.router));
  block.experts.num_experts = sizes.num_experts;
  block.experts.num_shared = num_shared;
  block.experts.intermediate_size = sizes.intermediate_size;
  return block;
}

// "mlp_layer_types" or, in files without, "first_k_dense_replace" and "moe_layer_freq".
Result<std::vector<bool>> read_expert_layers(const ConfigReader& reader, int64_t num_layers) {
  constexpr const char* kTypes = "mlp_layer_types";
  ASSIGN_OR_RETURN(const auto types, reader.get_strings(kTypes, kMaxLayersOfModel));
  ASSIGN_OR_RETURN(const int64_t num_dense,
                   reader.get_int("first_k_dense_replace", 0, num_layers, 0));
  ASSIGN_OR_RETURN(const int64_t frequency, reader.get_int("moe_layer_freq", 1, num_layers, 1));
  std::vector<bool> has_experts;
  if (!reader.has(kTypes)) {
    for (int64_t layer = 0; layer < num_layers; ++layer) {
      has_experts.push_back(layer >= num_dense && layer % frequency == 0);
    }
    return has_experts;
  }
  for (const std::string& type : types) {
    if (type != "dense" && type != "sparse") break;
    has_experts.push_back(type == "sparse");
  }
  if (std::ssize(types) != num_layers || std::ssize(has_experts) != num_layers) {
    const std::string expected =
        fmt::format("\"dense\" or \"sparse\" for each of the {} layers", num_layers);
    return reader.wrong(kTypes, *reader.find(kTypes), expected);
  }
  return has_experts;
}

}  // namespace

Result<DeepseekExperts> read_deepseek_experts(const ModelConfig& config,
                                              const ExpertChoice& choice) {
  const ConfigReader reader = config.extension();
  DeepseekExperts experts;
  experts.has_experts.assign(config.num_hidden_layers, false);
  if (reader.has("n_routed_experts")) {
    ASSIGN_OR_RETURN(experts.block, read_experts_block(config, choice));
    ASSIGN_OR_RETURN(experts.has_experts, read_expert_layers(reader, config.num_hidden_layers));
  }
  if (std::ranges::find(experts.has_experts, false) != experts.has_experts.end()) {
    RETURN_IF_ERROR(require_intermediate_size(config));
  }
  return experts;
}

}  // namespace atom
