#include "models/blocks/moe_config.h"

#include <algorithm>

namespace atom {
namespace {

const char* present_key(const ConfigReader& reader, const std::vector<const char*>& keys) {
  const auto found = std::ranges::find_if(keys, [&](const char* key) { return reader.has(key); });
  return found != keys.end() ? *found : keys.front();
}

}  // namespace

Result<MoeSizes> read_moe_sizes(const ModelConfig& config, const MoeKeys& keys) {
  const ConfigReader reader = config.extension();
  const char* const experts_key = present_key(reader, keys.num_experts);
  const char* const top_k_key = present_key(reader, keys.top_k);
  MoeSizes sizes;
  ASSIGN_OR_RETURN(
      sizes.num_experts,
      reader.require_int(experts_key, 1, ops::kMaxRoutedExperts, "the number of experts"));
  if (sizes.num_experts * config.num_hidden_layers > kMaxExpertsOfModel) {
    return invalid_argument(
        "config.json: '{}' {} in 'num_hidden_layers' {} are more than {} experts together",
        experts_key,
        sizes.num_experts,
        config.num_hidden_layers,
        kMaxExpertsOfModel);
  }
  ASSIGN_OR_RETURN(
      sizes.top_k,
      reader.require_int(
          top_k_key, 1, ops::kMaxRoutedTopK, "the number of experts that compute a token"));
  if (sizes.top_k > sizes.num_experts) {
    return invalid_argument("config.json: '{}' is {}, more than the {} experts of '{}'",
                            top_k_key,
                            sizes.top_k,
                            sizes.num_experts,
                            experts_key);
  }
  ASSIGN_OR_RETURN(
      sizes.intermediate_size,
      reader.require_int(keys.intermediate_size, 1, kMaxExpertWidth, "the width of an expert"));
  return sizes;
}

Status read_expert_groups(const ModelConfig& config,
                          int64_t num_experts,
                          ops::MoeRouting* routing) {
  const ConfigReader reader = config.extension();
  ASSIGN_OR_RETURN(const int64_t groups, reader.get_int("n_group", 1, ops::kMaxRoutedGroups, 1));
  if (num_experts % groups != 0) {
    return invalid_argument(
        "config.json: 'n_group' {} does not divide the {} experts", groups, num_experts);
  }
  ASSIGN_OR_RETURN(const int64_t chosen, reader.get_int("topk_group", 1, groups, groups));
  const int64_t num_candidates = chosen * (num_experts / groups);
  if (num_candidates < routing->top_k) {
    return invalid_argument(
        "config.json: 'topk_group' {} leaves {} experts to choose {} from; 'n_group' is {}",
        chosen,
        num_candidates,
        routing->top_k,
        groups);
  }
  routing->num_groups = groups;
  routing->num_top_groups = chosen;
  return {};
}

Status require_intermediate_size(const ModelConfig& config) {
  if (config.intermediate_size > 0) return {};
  return invalid_argument(
      "config.json: missing 'intermediate_size' (the width of the dense feed-forward layers)");
}

}  // namespace atom
