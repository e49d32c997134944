// What config.json says of a mixture of experts, checked: the keys that families share.
#pragma once

#include <vector>

#include "base/status.h"
#include "config/model_config.h"
#include "layers/moe/moe_router.h"

namespace atom {

// Beyond any that makes sense.
inline constexpr int64_t kMaxExpertWidth = int64_t{1} << 20;
// Of all layers. Kilobytes are planned for each before a weight is read.
inline constexpr int64_t kMaxExpertsOfModel = int64_t{1} << 17;
inline constexpr int64_t kMaxSharedExperts = 64;
inline constexpr double kMaxRoutedScale = 1e6;

// How a family spells them; of several spellings the first that a file has counts.
struct MoeKeys {
  std::vector<const char*> num_experts;
  std::vector<const char*> top_k;
  const char* intermediate_size;  // of one expert
};

struct MoeSizes {
  int64_t num_experts = 0;
  int64_t top_k = 0;
  int64_t intermediate_size = 0;
};

// An error when one is missing, or there are fewer experts than a token has, or far too many.
Result<MoeSizes> read_moe_sizes(const ModelConfig& config, const MoeKeys& keys);

// "n_group" and "topk_group". An error when groups do not divide the experts, or when the chosen
// ones have too few for a token.
Status read_expert_groups(const ModelConfig& config, int64_t num_experts, ops::MoeRouting* routing);

// A model with dense layers needs their width.
Status require_intermediate_size(const ModelConfig& config);

}  // namespace atom
