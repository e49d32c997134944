// Which layers a rank of a pipeline computes.
#pragma once

#include <cstdint>

#include "nn/build_context.h"
#include "nn/weight_mapping.h"

namespace atom {

struct PipelineStage {
  int32_t first_layer = 0;
  int32_t end_layer = 0;
  bool is_first = true;  // has the embedding
  bool is_last = true;   // has the final norm and the head

  bool has_layer(int32_t layer) const { return layer >= first_layer && layer < end_layer; }
};

// The layers of stage `stage` of `num_stages`. What does not divide goes to the stages before the
// last, from behind: 61 layers on 4 stages are 15, 15, 16 and 15.
PipelineStage pipeline_stage(int32_t num_layers, int32_t stage, int32_t num_stages);

// That of the rank for which `build` builds; its construction fails when there are more stages than
// layers.
PipelineStage pipeline_stage(BuildContext& build);

// The mapping of a whole decoder, with the tensors of other stages ignored.
WeightMapping mapping_of_stage(WeightMapping mapping,
                               const PipelineStage& stage,
                               const ModelConfig& config);

}  // namespace atom
