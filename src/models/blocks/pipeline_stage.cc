#include "models/blocks/pipeline_stage.h"

#include <string>

namespace atom {

PipelineStage pipeline_stage(int32_t num_layers, int32_t stage, int32_t num_stages) {
  const int32_t base = num_layers / num_stages, more = num_layers % num_stages;
  const auto size = [&](int32_t i) {
    const int32_t from_behind = num_stages - i;  // 1 of the last
    return base + (from_behind >= 2 && from_behind <= more + 1 ? 1 : 0);
  };
  PipelineStage result;
  for (int32_t i = 0; i < stage; ++i) result.first_layer += size(i);
  result.end_layer = result.first_layer + size(stage);
  result.is_first = stage == 0;
  result.is_last = stage == num_stages - 1;
  return result;
}

PipelineStage pipeline_stage(BuildContext& build) {
  const int32_t num_layers = build.config.num_hidden_layers;
  const int32_t num_stages = build.parallel.pipeline_parallel_size;
  if (num_layers < num_stages) {
    build.fail(
        unimplemented("--pipeline-parallel-size {}: the model has {} layers, less than one "
                      "for each stage",
                      num_stages,
                      num_layers));
    build.parallel = {};
  }
  return pipeline_stage(
      num_layers, build.parallel.pipeline_parallel_rank, build.parallel.pipeline_parallel_size);
}

WeightMapping mapping_of_stage(WeightMapping mapping,
                               const PipelineStage& stage,
                               const ModelConfig& config) {
  const auto ignore = [&](std::string prefix) {
    mapping.ignores.push_back({IgnoreRule::Match::kPrefix, std::move(prefix)});
  };
  for (int32_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!stage.has_layer(layer)) ignore("model.layers." + std::to_string(layer) + ".");
  }
  const bool has_embedding = stage.is_first || (stage.is_last && config.tie_word_embeddings);
  if (!has_embedding) ignore("model.embed_tokens.");
  if (!stage.is_last) {
    ignore("model.norm.");
    ignore("lm_head.");
  }
  return mapping;
}

}  // namespace atom
