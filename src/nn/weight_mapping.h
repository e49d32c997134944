// How the tensor names of a checkpoint become parameters of a model. A table in each model file;
// the rules that hold for every architecture come from base_weight_mapping().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"

namespace atom {

struct RenameRule {
  enum class Match { kPrefix, kContains };
  Match match = Match::kPrefix;
  std::string from;
  std::string to;  // replaces the first occurrence
};

// A module of the checkpoint that is one slice of a packed module: {"q_proj", "qkv_proj", "q"},
// {"experts.{e}.w1", "experts.gate_up_proj", "{e}.gate"}. `source` and `target` are runs of whole
// components of the dotted name. "{e}" in `source` captures one component, for which it stands in
// the two others. A `source` that ends in "$" matches at the end of a name only.
struct PackedModule {
  std::string source;
  std::string target;
  std::string slice_id;
};

struct IgnoreRule {
  enum class Match { kPrefix, kSuffix, kContains };
  Match match = Match::kContains;
  std::string pattern;
};

struct WeightMapping {
  std::vector<RenameRule> renames;  // all of them, in order
  std::vector<PackedModule> packed_modules_mapping;
  // For tensors that no parameter takes.
  std::vector<IgnoreRule> ignores;
  // Tensors of "layers.<i>." with i from here on are ignored (layers of a draft model); -1: none.
  int32_t num_layers = -1;
};

// Ignores buffers that old checkpoints store, layers behind the last, vision parts, and lm_head
// when it is tied to the embedding; renames a multimodal checkpoint's text model to "model.", and
// the scales of a quantized one to weight_scale, input_scale, k_scale and v_scale.
WeightMapping base_weight_mapping(const ModelConfig& config);

struct MappedName {
  std::string parameter;  // after renames, before packing
  // Alternatives (parameter, slice) by packing, to be tried when `parameter` does not exist.
  struct Packed {
    std::string parameter;
    std::string slice_id;
  };
  std::vector<Packed> packed;
};

MappedName map_name(const WeightMapping& mapping, const std::string& tensor_name);

// The checkpoint's name of the module that is slice `slice_id` of `module`: how a quantization
// config speaks of it. `module` itself when no entry packs it.
std::string source_module(const std::vector<PackedModule>& packed_modules,
                          std::string_view module,
                          std::string_view slice_id);

// The rule by which a renamed tensor that nobody takes is ignored, for the account; empty: none.
std::string ignore_reason(const WeightMapping& mapping, const std::string& name);

}  // namespace atom
