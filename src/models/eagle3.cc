// EAGLE-3 heads: draft models with checkpoints of their own.
#include "models/blocks/eagle3_head.h"
#include "models/registry.h"

namespace atom {
namespace {

BuildContext build_of(const BuildContext& target,
                      const ModelConfig& config,
                      const WeightMapping& mapping) {
  BuildContext build{config, target.dtype, target.max_model_len, target.device, target.parallel};
  build.storage = target.storage;
  build.kv_cache_dtype = target.kv_cache_dtype;
  build.emulate_quantized_activations = target.emulate_quantized_activations;
  build.fusions = target.fusions;
  build.float8_draft_head = target.float8_draft_head;
  build.packed_modules_mapping = mapping.packed_modules_mapping;
  return build;
}

WeightMapping eagle3_weight_mapping(const Eagle3Config& config) {
  WeightMapping mapping = decoder_weight_mapping(config.model);
  // Which tokens have an id: "d2t" says it, too.
  mapping.ignores.push_back({IgnoreRule::Match::kPrefix, "t2d"});
  return mapping;
}

}  // namespace

Result<std::unique_ptr<DraftModel>> create_eagle3(BuildContext& build,
                                                  const CausalLM& target,
                                                  const Eagle3Config& config) {
  if (!config.has_embedding && config.model.hidden_size != build.config.hidden_size) {
    return invalid_argument(
        "--draft-model: the checkpoint has no embed_tokens.weight, and the model's, of {} columns, "
        "does not serve a head of hidden_size {}",
        build.config.hidden_size,
        config.model.hidden_size);
  }
  const WeightMapping mapping = eagle3_weight_mapping(config);
  BuildContext layers = build_of(build, config.model, mapping);
  ModelConfig of_ids = config.model;
  of_ids.vocab_size = config.draft_vocab_size;
  BuildContext head = build_of(build, of_ids, mapping);
  auto draft = std::make_unique<Eagle3Head>(layers, head, target, config, mapping);
  RETURN_IF_ERROR(layers.status.with_context("--draft-model"));
  RETURN_IF_ERROR(head.status.with_context("--draft-model"));
  build.storage = std::move(layers.storage);
  return std::unique_ptr<DraftModel>(std::move(draft));
}

}  // namespace atom
