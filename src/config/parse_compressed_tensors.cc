#include "config/parse_compressed_tensors.h"

#include <nlohmann/json.hpp>

namespace atom {
namespace {

constexpr size_t kMaxPatterns = 100'000;
constexpr size_t kMaxGroups = 64;
constexpr const char* kSupported =
    "supported are FP8 (8-bit float) weights per tensor or channel, with activations that stay as "
    "they are, are quantised dynamically, or statically per tensor";

// What compressed-tensors calls QuantizationArgs, with its defaults.
struct QuantArgs {
  int64_t num_bits = 8;
  std::string type;
  std::string strategy;
  bool symmetric = true;
  bool dynamic = false;

  bool is_fp8() const { return num_bits == 8 && type == "float" && symmetric; }
  std::string to_string() const {
    return fmt::format("{}-bit {} {}per {}{}",
                       num_bits,
                       type,
                       symmetric ? "" : "asymmetric ",
                       strategy,
                       dynamic ? " (dynamic)" : "");
  }
};

Result<QuantArgs> read_args(const ConfigReader& reader) {
  QuantArgs args;
  ASSIGN_OR_RETURN(args.num_bits, reader.get_int("num_bits", 1, 64, 8));
  ASSIGN_OR_RETURN(args.type, reader.get_string("type", "int"));
  ASSIGN_OR_RETURN(args.symmetric, reader.get_bool("symmetric", true));
  ASSIGN_OR_RETURN(const int64_t group, reader.get_int("group_size", -1, 1 << 20, 0));
  ASSIGN_OR_RETURN(args.strategy,
                   reader.get_string("strategy",
                                     group == 0  ? "tensor"
                                     : group < 0 ? "channel"
                                                 : "group"));
  if (const Json* dynamic = reader.find("dynamic"); dynamic != nullptr && dynamic->is_string()) {
    return unimplemented(
        "{}: 'dynamic' {} is not supported yet; {}", reader.where(), dynamic->dump(), kSupported);
  }
  ASSIGN_OR_RETURN(args.dynamic, reader.get_bool("dynamic", false));
  return args;
}

Status unsupported(const ConfigReader& reader, const char* what, const QuantArgs& args) {
  return unimplemented(
      "{}: {} of {} are not supported yet; {}", reader.where(), what, args.to_string(), kSupported);
}

Result<QuantScheme> read_scheme(const ConfigReader& group) {
  QuantScheme scheme;
  ASSIGN_OR_RETURN(const Json* weights_json, group.get_object("weights"));
  if (weights_json == nullptr) return scheme;
  ASSIGN_OR_RETURN(const QuantArgs weights,
                   read_args(ConfigReader(*weights_json, group.where() + ".weights")));
  const bool per_tensor = weights.strategy == "tensor";
  if (!weights.is_fp8() || weights.dynamic || !(per_tensor || weights.strategy == "channel")) {
    return unsupported(group, "weights", weights);
  }
  scheme.weights = per_tensor ? QuantType::kPerTensor : QuantType::kPerToken;

  ASSIGN_OR_RETURN(const Json* inputs_json, group.get_object("input_activations"));
  if (group.has("output_activations")) {
    return unimplemented(
        "{}: 'output_activations' are not supported yet; {}", group.where(), kSupported);
  }
  if (inputs_json == nullptr) return scheme;
  ASSIGN_OR_RETURN(const QuantArgs inputs,
                   read_args(ConfigReader(*inputs_json, group.where() + ".input_activations")));
  const bool whole = inputs.strategy == "tensor";
  if (!inputs.is_fp8() || !(whole || (inputs.dynamic && inputs.strategy == "token"))) {
    return unsupported(group, "input activations", inputs);
  }
  // A dynamic scale is per token in either case: per tensor it would depend on the batch.
  scheme.static_activations = !inputs.dynamic;
  scheme.activations = inputs.dynamic ? QuantType::kPerToken : QuantType::kPerTensor;
  return scheme;
}

Status read_kv_cache_scheme(const ConfigReader& reader, QuantConfig* config) {
  ASSIGN_OR_RETURN(const Json* json, reader.get_object("kv_cache_scheme"));
  if (json == nullptr) return {};
  const ConfigReader scheme(*json, reader.where() + ".kv_cache_scheme");
  ASSIGN_OR_RETURN(const QuantArgs args, read_args(scheme));
  if (!args.is_fp8() || args.strategy != "tensor" || args.dynamic) {
    return unimplemented("{}: {} is not supported yet; supported is FP8 (8-bit float) per tensor",
                         scheme.where(),
                         args.to_string());
  }
  config->fp8_kv_cache = true;
  return {};
}

}  // namespace

Result<std::vector<ModulePattern>> read_module_patterns(const ConfigReader& reader,
                                                        std::string_view key) {
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, reader.get_strings(key, kMaxPatterns));
  std::vector<ModulePattern> patterns;
  for (const std::string& text : texts) {
    Result<ModulePattern> pattern = ModulePattern::parse(text);
    if (!pattern.ok()) {
      return Status(pattern.status().code(),
                    fmt::format("{}: '{}': {}", reader.where(), key, pattern.status().message()));
    }
    patterns.push_back(*std::move(pattern));
  }
  return patterns;
}

Status parse_compressed_tensors(const ConfigReader& reader, QuantConfig* config) {
  for (const char* key : {"sparsity_config", "transform_config"}) {
    ASSIGN_OR_RETURN(const Json* json, reader.get_object(key));
    if (json != nullptr && !json->empty()) {
      return unimplemented("{}: '{}' is not supported yet", reader.where(), key);
    }
  }
  ASSIGN_OR_RETURN(const Json* groups, reader.get_object("config_groups"));
  if (groups == nullptr || groups->empty() || groups->size() > kMaxGroups) {
    return invalid_argument(
        "{}: 'config_groups' should have 1 to {} entries", reader.where(), kMaxGroups);
  }
  for (const auto& [name, json] : groups->items()) {
    const std::string where = fmt::format("{}.config_groups.{}", reader.where(), name);
    if (!json.is_object()) return invalid_argument("{}: expected an object", where);
    const ConfigReader group_reader(json, where);
    QuantConfig::Group group;
    ASSIGN_OR_RETURN(group.targets, read_module_patterns(group_reader, "targets"));
    ASSIGN_OR_RETURN(group.scheme, read_scheme(group_reader));
    config->groups.push_back(std::move(group));
  }
  ASSIGN_OR_RETURN(config->ignored, read_module_patterns(reader, "ignore"));
  return read_kv_cache_scheme(reader, config);
}

}  // namespace atom
