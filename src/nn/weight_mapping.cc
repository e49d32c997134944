#include "nn/weight_mapping.h"

#include <charconv>
#include <string_view>
#include <utility>

namespace atom {
namespace {

// The first component of a dotted name.
std::string_view first_component(std::string_view name) {
  return name.substr(0, name.find('.'));
}

// What follows the first component and its dot; empty when nothing does.
std::string_view behind_first(std::string_view name) {
  const size_t dot = name.find('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(dot + 1);
}

// i of "...layers.i....", or -1.
int64_t layer_index(std::string_view name) {
  while (!name.empty() && first_component(name) != "layers") name = behind_first(name);
  const std::string_view text = first_component(behind_first(name));
  const char* end = text.data() + text.size();
  int64_t index = -1;
  const auto [stop, error] = std::from_chars(text.data(), end, index);
  return error == std::errc() && stop == end ? index : -1;
}

// What "{e}" and the like stand for.
using Captures = std::vector<std::pair<std::string, std::string>>;

bool is_capture(std::string_view component) {
  return component.starts_with('{') && component.ends_with('}');
}

// Length of the run of components at the beginning of `name` that `pattern` matches; 0: none.
size_t match_components(std::string_view pattern, std::string_view name, Captures* captures) {
  size_t length = 0;
  for (std::string_view rest = name; !pattern.empty(); pattern = behind_first(pattern)) {
    if (rest.empty()) return 0;
    const std::string_view wanted = first_component(pattern);
    const std::string_view found = first_component(rest);
    if (is_capture(wanted)) {
      captures->emplace_back(wanted, found);
    } else if (wanted != found) {
      return 0;
    }
    length = static_cast<size_t>(found.data() + found.size() - name.data());
    rest = behind_first(rest);
  }
  return length;
}

std::string substitute(std::string_view pattern, const Captures& captures) {
  std::string text(pattern);
  for (const auto& [capture, value] : captures) {
    const size_t at = text.find(capture);
    if (at != std::string::npos) text.replace(at, capture.size(), value);
  }
  return text;
}

// Replaces the first run of components that `from` matches by `to`, and has the captures; false:
// there is none.
bool replace_components(std::string_view from,
                        std::string_view to,
                        std::string* name,
                        Captures* captures) {
  const bool at_end = from.ends_with('$');
  if (at_end) from.remove_suffix(1);
  for (std::string_view rest = *name; !rest.empty(); rest = behind_first(rest)) {
    const size_t num_captures = captures->size();
    const size_t length = match_components(from, rest, captures);
    if (length > 0 && (!at_end || length == rest.size())) {
      const auto begin = static_cast<size_t>(rest.data() - name->data());
      *name = name->substr(0, begin) + substitute(to, *captures) + name->substr(begin + length);
      return true;
    }
    captures->resize(num_captures);
  }
  return false;
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
    {".weight_packed", ".weight"},
    {"_proj_blocks", "_proj.weight"},
    {"_proj_scales", "_proj.weight_scale"},
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

// Scales of a KV cache that is not quantized and of products that never are, and what files say
// beside the values: shapes, and the zero points of symmetric formats, which are 0.
constexpr const char* kUnusedScales[] = {".weight_shape",
                                         ".input_scale",
                                         ".weight_zero_point",
                                         ".input_zero_point",
                                         ".k_scale",
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
    std::string name = mapped.parameter;
    Captures captures;
    if (!replace_components(packed.source, packed.target, &name, &captures)) continue;
    mapped.packed.push_back({std::move(name), substitute(packed.slice_id, captures)});
  }
  return mapped;
}

std::string source_module(const std::vector<PackedModule>& packed_modules,
                          std::string_view module,
                          std::string_view slice_id) {
  for (const PackedModule& packed : packed_modules) {
    Captures captures;
    if (packed.source.ends_with('$')) continue;  // a tensor, not a module
    if (match_components(packed.slice_id, slice_id, &captures) != slice_id.size()) continue;
    if (!module.ends_with(packed.target)) continue;
    const std::string_view parent = module.substr(0, module.size() - packed.target.size());
    if (!parent.empty() && !parent.ends_with('.')) continue;
    return std::string(parent) + substitute(packed.source, captures);
  }
  return std::string(module);
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
