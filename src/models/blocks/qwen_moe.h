// The feed-forwards of Qwen's mixtures of experts: which layers have experts and how these are
// chosen. A model without experts has dense layers alone.
#pragma once

#include <vector>

#include "models/blocks/decoder.h"
#include "models/blocks/moe_block.h"

namespace atom {

struct QwenMoe {
  // Layer i has experts unless it is listed here, and of the others every `sparse_step`-th.
  std::vector<int64_t> dense_layers;
  int64_t sparse_step = 0;  // 0: no layer has
  MoeBlockOptions experts;

  bool is_sparse(int layer) const;
};

struct QwenMoeFamily {
  bool has_shared_expert = false;  // beside the routed ones, with a gate
  bool norm_topk_prob = false;     // where the file does not say it
};

Result<QwenMoe> read_qwen_moe(const ModelConfig& config, const QwenMoeFamily& family);

// "mlp" of layer `layer`.
NamedSubLayer make_qwen_feed_forward(BuildContext& build, const QwenMoe& moe, int layer);

}  // namespace atom
