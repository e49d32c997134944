// How the tensors of a checkpoint find the parameters of a model: a table in each model file.
#pragma once

#include <string>
#include <vector>

#include "config/model_config.h"

namespace atom {

// The tensor "a.b.q_proj.weight" fills slice "q" of the parameter "a.b.qkv_proj.weight".
struct PackedModule {
  std::string checkpoint_name;  // a whole path segment: "q_proj"
  std::string parameter_name;   // what stands in its place: "qkv_proj"
  std::string slice_id;         // "q"
};

struct WeightRename {
  std::string from;  // a prefix of the tensor's name
  std::string to;
};

struct WeightMapping {
  std::vector<WeightRename> renames;  // the first whose prefix matches is applied
  std::vector<PackedModule> packed_modules;
  // A tensor whose (renamed) name contains one of these is ignored.
  std::vector<std::string> ignored_substrings;
  // Layers from here on ("model.layers.N.") are ignored: draft heads stored behind the model.
  int32_t num_layers = 0;
  // The head shares the embedding's weight: "lm_head.weight" is ignored.
  bool tied_lm_head = false;
};

// What holds for every family: rotary buffers ignored, multi-modal prefixes rewritten to the text
// model's, vision towers ignored.
WeightMapping default_weight_mapping(const ModelConfig& config);

}  // namespace atom
