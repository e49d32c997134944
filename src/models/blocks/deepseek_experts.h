// The experts of DeepSeek V2 and later as config.json describes them: chosen by groups, with shared
// ones beside them.
#pragma once

#include <vector>

#include "models/blocks/moe_block.h"

namespace atom {

// What a file says that does not say it.
struct ExpertChoice {
  const char* scoring;       // "scoring_func"
  const char* top_k_method;  // "topk_method"
  bool normalizes;           // "norm_topk_prob"
};

struct DeepseekExperts {
  MoeBlockOptions block;
  std::vector<bool> has_experts;  // by layer
};

Result<DeepseekExperts> read_deepseek_experts(const ModelConfig& config,
                                              const ExpertChoice& choice);

}  // namespace atom
