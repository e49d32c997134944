#include "nn/weight_mapping.h"

#include <charconv>
#include <string_view>
#include <utility>

namespace atom {
namespace {

// Calls visit(begin, component) for every component of a dotted name; stops when it returns true.
template <typename Visit>
void for_each_component(std::string_view name, const Visit& visit) {
  size_t begin = 0;
  while (begin <= name.size()) {
    const size_t end = std::min(name.find('.', begin), name.size());
    if (visit(begin, name.substr(begin, end - begin))) return;
    begin = end + 1;
  }
}

// i of "...layers.i....", or -1.
int64_t layer_index(std::string_view name) {
  int64_t index = -1;
  bool after_layers = false;
  for_each_component(name, [&](size_t, std::string_view component) {
    if (after_layers) {
      const char* end = component.data() + component.size();
      const auto [stop, error] = std::from_chars(component.data(), end, index);
      if (error != std::errc() || stop != end) index = -1;
      return true;
    }
    after_layers = component == "layers";
    return false;
  });
  return index;
}

bool matches(const IgnoreRule& rule, std::string_view name) {
  switch (rule.match) {
    case IgnoreRule::Match::kPrefix:
      return name.starts_with(rule.pattern);
    case IgnoreRule::Match::kSuffix:
      return name.ends_with(rule.pattern);
    case IgnoreRule::Match::kContains:
      return name.find(rule.pattern) != std::string_view::npos;
  }
  return false;
}

std::string describe(const IgnoreRule& rule) {
  switch (rule.match) {
    case IgnoreRule::Match::kPrefix:
      return rule.pattern + "*";
    case IgnoreRule::Match::kSuffix:
      return "*" + rule.pattern;
    case IgnoreRule::Match::kContains:
      return "*" + rule.pattern + "*";
  }
  return "";
}

// Names in circulation of the scales of weights, activations and KV caches, and ours.
constexpr std::pair<const char*, const char*> kScaleNames[] = {
    {".weight_scale_inv", ".weight_scale"},
    {".activation_scale", ".input_scale"},
    {".k_proj.k_scale", ".k_scale"},
    {".v_proj.v_scale", ".v_scale"},
    {".k_proj.output_scale", ".k_scale"},
    {".v_proj.output_scale", ".v_scale"},
    {".qkv_proj.k_scale", ".k_scale"},
    {".qkv_proj.v_scale", ".v_scale"},
    {".attn.k_scale", ".k_scale"},
    {".attn.v_scale", ".v_scale"}};

// Of a KV cache that is not quantised, and of products that never are.
constexpr const char* kUnusedScales[] = {".k_scale",
                                         ".v_scale",
                                         ".kv_scale",
                                         ".q_scale",
                                         ".prob_scale",
                                         ".q_proj.output_scale",
                                         ".prob_output_scale"};

}  // namespace

WeightMapping base_weight_mapping(const ModelConfig& config) {
  using Match = IgnoreRule::Match;
  WeightMapping mapping;
  mapping.num_layers = config.num_hidden_layers;
  mapping.renames = {{RenameRule::Match::kPrefix, "language_model.", ""},
                     {RenameRule::Match::kPrefix, "model.language_model.", "model."}};
  mapping.ignores = {{Match::kContains, "rotary_emb.inv_freq"},
                     {Match::kContains, "rotary_emb.cos_cached"},
                     {Match::kContains, "rotary_emb.sin_cached"},
                     {Match::kSuffix, ".attn.masked_bias"},
                     {Match::kSuffix, ".attn.bias"}};
  for (const char* part : {"visual.", "vision_tower.", "multi_modal_projector."}) {
    mapping.ignores.push_back({Match::kPrefix, part});
    mapping.ignores.push_back({Match::kPrefix, std::string("model.") + part});
  }
  if (config.quantization.is_quantized()) {
    for (const auto& [from, to] : kScaleNames) {
      mapping.renames.push_back({RenameRule::Match::kContains, from, to});
    }
    for (const char* name : kUnusedScales) mapping.ignores.push_back({Match::kSuffix, name});
  }
  if (config.tie_word_embeddings) mapping.ignores.push_back({Match::kPrefix, "lm_head."});
  return mapping;
}

MappedName map_name(const WeightMapping& mapping, const std::string& tensor_name) {
  MappedName mapped;
  mapped.parameter = tensor_name;
  for (const RenameRule& rule : mapping.renames) {
    std::string& name = mapped.parameter;
    const size_t at = rule.match == RenameRule::Match::kContains      ? name.find(rule.from)
                      : std::string_view(name).starts_with(rule.from) ? 0
                                                                      : std::string::npos;
    if (at != std::string::npos) name.replace(at, rule.from.size(), rule.to);
  }
  for (const PackedModule& packed : mapping.packed_modules_mapping) {
    for_each_component(mapped.parameter, [&](size_t begin, std::string_view component) {
      if (component != packed.source) return false;
      std::string name = mapped.parameter;
      name.replace(begin, component.size(), packed.target);
      mapped.packed.push_back({std::move(name), packed.slice_id});
      return true;
    });
  }
  return mapped;
}

std::string ignore_reason(const WeightMapping& mapping, const std::string& name) {
  for (const IgnoreRule& rule : mapping.ignores) {
    if (matches(rule, name)) return describe(rule);
  }
  if (mapping.num_layers >= 0 && layer_index(name) >= mapping.num_layers) {
    return fmt::format("layers from {} on", mapping.num_layers);
  }
  return "";
}

}  // namespace atom
