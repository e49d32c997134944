#include "config/online_quant_config.h"

#include <nlohmann/json.hpp>

#include "config/config_reader.h"
#include "config/parse_compressed_tensors.h"

namespace atom {
namespace {

constexpr size_t kMaxOnlineLayers = 4096;

struct NamedFormat {
  std::string_view name;
  OnlineQuantization quantization;
};

constexpr NamedFormat kFormats[] = {{"ptpc_fp8", OnlineQuantization::kFp8},
                                    {"fp8", OnlineQuantization::kFp8},
                                    {"int8", OnlineQuantization::kInt8},
                                    {"mxfp4", OnlineQuantization::kMxFp4}};

QuantScheme online_scheme(OnlineQuantization quantization) {
  QuantScheme scheme;
  scheme.online = true;
  scheme.weights = QuantType::kPerToken;
  scheme.activations = QuantType::kPerToken;
  if (quantization == OnlineQuantization::kInt8) {
    scheme.weight_dtype = scheme.activation_dtype = QuantDType::kInt8;
  } else if (quantization == OnlineQuantization::kMxFp4) {
    scheme.weights = scheme.activations = QuantType::kPer1x32;
    scheme.weight_dtype = scheme.activation_dtype = QuantDType::kFloat4E2M1;
  }
  return scheme;
}

// What latent attention multiplies by head, and in no other way, stays as it is as well.
std::vector<ModulePattern> never_quantized_online() {
  std::vector<ModulePattern> patterns = never_quantized();
  patterns.push_back(ModulePattern::parse("self_attn.kv_b_proj").value());
  return patterns;
}

std::string_view name_of(OnlineQuantization quantization) {
  for (const NamedFormat& format : kFormats) {
    if (format.quantization == quantization && format.name != "ptpc_fp8") return format.name;
  }
  return "";
}

Result<QuantScheme> parse_format(const ConfigReader& reader, std::string_view key) {
  ASSIGN_OR_RETURN(const std::string name, reader.get_string(key, ""));
  for (const NamedFormat& format : kFormats) {
    if (name == format.name) return online_scheme(format.quantization);
  }
  return unimplemented(
      "{}: '{}' is '{}'; supported are ptpc_fp8, fp8, int8 and mxfp4", reader.where(), key, name);
}

Status parse_layers(const ConfigReader& reader, QuantConfig* config) {
  ASSIGN_OR_RETURN(const Json* layers, reader.get_object("layer_quant_config"));
  if (layers == nullptr) return {};
  if (layers->size() > kMaxOnlineLayers) {
    return invalid_argument(
        "{}: 'layer_quant_config' has more than {} entries", reader.where(), kMaxOnlineLayers);
  }
  const ConfigReader layer_reader(*layers, reader.where() + ".layer_quant_config");
  for (const auto& [text, unused] : layers->items()) {
    ASSIGN_OR_RETURN(ModulePattern pattern, ModulePattern::parse(text));
    ASSIGN_OR_RETURN(const QuantScheme scheme, parse_format(layer_reader, text));
    config->groups.push_back({{std::move(pattern)}, scheme});
  }
  return {};
}

}  // namespace

QuantConfig online_quant_config(OnlineQuantization quantization) {
  QuantConfig config;
  config.method = name_of(quantization);
  config.groups.push_back({every_linear(), online_scheme(quantization)});
  config.ignored = never_quantized_online();
  return config;
}

Result<QuantConfig> parse_online_quant_config(const std::string& text) {
  constexpr const char* kWhere = "--online-quant-config";
  ASSIGN_OR_RETURN(const Json json, parse_json(text, kWhere));
  if (!json.is_object()) return invalid_argument("{}: expected a JSON object", kWhere);
  for (const auto& [key, unused] : json.items()) {
    if (key == "global_quant_config" || key == "layer_quant_config" || key == "exclude_layer") {
      continue;
    }
    return invalid_argument(
        "{}: unknown key '{}'; expected global_quant_config, layer_quant_config or exclude_layer",
        kWhere,
        key);
  }
  const ConfigReader reader(json, kWhere);
  QuantConfig config;
  config.method = "online";
  config.ignored = never_quantized_online();
  ASSIGN_OR_RETURN(const std::vector<ModulePattern> excluded,
                   read_module_patterns(reader, "exclude_layer"));
  config.ignored.insert(config.ignored.end(), excluded.begin(), excluded.end());
  RETURN_IF_ERROR(parse_layers(reader, &config));
  if (reader.has("global_quant_config")) {
    ASSIGN_OR_RETURN(const QuantScheme scheme, parse_format(reader, "global_quant_config"));
    config.groups.push_back({every_linear(), scheme});
  }
  if (config.groups.empty()) {
    return invalid_argument("{}: names no format: neither for all layers nor for some", kWhere);
  }
  return config;
}

}  // namespace atom
