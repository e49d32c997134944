#include "models/blocks/qwen_moe.h"

#include <algorithm>

#include "models/blocks/gated_mlp.h"
#include "models/blocks/moe_config.h"

namespace atom {
namespace {

Result<MoeBlockOptions> read_experts(const ModelConfig& config, const QwenMoeFamily& family) {
  const ConfigReader reader = config.extension();
  ASSIGN_OR_RETURN(const MoeSizes sizes,
                   read_moe_sizes(config,
                                  {.num_experts = {"num_experts", "num_local_experts"},
                                   .top_k = {"num_experts_per_tok"},
                                   .intermediate_size = "moe_intermediate_size"}));
  ASSIGN_OR_RETURN(const bool normalizes, reader.get_bool("norm_topk_prob", family.norm_topk_prob));
  MoeBlockOptions moe;
  moe.router.num_experts = sizes.num_experts;
  moe.router.routing = {.top_k = sizes.top_k, .normalizes = normalizes};
  moe.experts.num_experts = sizes.num_experts;
  moe.experts.intermediate_size = sizes.intermediate_size;
  if (family.has_shared_expert) {
    ASSIGN_OR_RETURN(moe.gated_shared_size,
                     reader.require_int("shared_expert_intermediate_size",
                                        1,
                                        kMaxExpertWidth,
                                        "the width of the shared expert"));
  }
  return moe;
}

}  // namespace

bool QwenMoe::is_sparse(int layer) const {
  return sparse_step > 0 && (layer + 1) % sparse_step == 0 &&
         std::ranges::find(dense_layers, layer) == dense_layers.end();
}

Result<QwenMoe> read_qwen_moe(const ModelConfig& config, const QwenMoeFamily& family) {
  const ConfigReader reader = config.extension();
  const int64_t num_layers = config.num_hidden_layers;
  QwenMoe moe;
  ASSIGN_OR_RETURN(
      moe.dense_layers,
      reader.get_ints("mlp_only_layers", 0, num_layers - 1, static_cast<size_t>(num_layers)));
  ASSIGN_OR_RETURN(moe.sparse_step, reader.get_int("decoder_sparse_step", 1, INT32_MAX, 1));
  ASSIGN_OR_RETURN(moe.experts, read_experts(config, family));
  for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!moe.is_sparse(layer)) RETURN_IF_ERROR(require_intermediate_size(config));
  }
  return moe;
}

NamedSubLayer make_qwen_feed_forward(BuildContext& build, const QwenMoe& moe, int layer) {
  if (moe.is_sparse(layer)) return make_sub_layer<MoeBlock>(build, "mlp", moe.experts);
  return make_sub_layer<GatedMLP>(build, "mlp", build.config.intermediate_size, /*has_bias=*/false);
}

}  // namespace atom
