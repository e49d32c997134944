#include "config/quant_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/config_reader.h"
#include "config/parse_compressed_tensors.h"

namespace atom {
namespace {

// Methods that checkpoints in circulation name.
constexpr std::array<std::string_view, 11> kKnownMethods = {"fp8",
                                                            "compressed-tensors",
                                                            "quark",
                                                            "mxfp4",
                                                            "awq",
                                                            "gptq",
                                                            "modelopt",
                                                            "bitsandbytes",
                                                            "fbgemm_fp8",
                                                            "hqq",
                                                            "torchao"};

std::vector<ModulePattern> every_linear() {
  return {ModulePattern::parse("Linear").value()};
}

// "quant_method": "fp8", as transformers and vLLM write it.
Status parse_fp8(const ConfigReader& reader, QuantConfig* config) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> block,
                   reader.get_ints("weight_block_size", 1, 1 << 20, 2));
  if (!block.empty()) {
    return unimplemented(
        "{}: FP8 weights in blocks ('weight_block_size' {}) are not supported yet; supported is "
        "one scale per tensor",
        reader.where(),
        fmt::join(block, " x "));
  }
  ASSIGN_OR_RETURN(const std::string format, reader.get_string("fmt", "e4m3"));
  if (format != "e4m3" && format != "float8_e4m3fn") {
    return unimplemented(
        "{}: 'fmt' '{}' is not supported; supported is 'e4m3'", reader.where(), format);
  }
  ASSIGN_OR_RETURN(const std::string activations,
                   reader.get_string("activation_scheme", "dynamic"));
  if (activations != "dynamic" && activations != "static") {
    return reader.wrong(
        "activation_scheme", *reader.find("activation_scheme"), "'dynamic' or 'static'");
  }
  QuantScheme scheme;
  scheme.weights = QuantType::kPerTensor;
  scheme.static_activations = activations == "static";
  // A dynamic scale is per token: per tensor it would depend on the batch.
  scheme.activations = scheme.static_activations ? QuantType::kPerTensor : QuantType::kPerToken;
  config->groups.push_back({every_linear(), scheme});
  for (const char* key : {"modules_to_not_convert", "ignored_layers"}) {
    ASSIGN_OR_RETURN(const std::vector<ModulePattern> patterns, read_module_patterns(reader, key));
    config->ignored.insert(config->ignored.end(), patterns.begin(), patterns.end());
  }
  return {};
}

bool any_matches(const std::vector<ModulePattern>& patterns, std::string_view module) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const ModulePattern& pattern) {
    return pattern.matches(module);
  });
}

}  // namespace

std::string QuantScheme::to_string() const {
  if (!is_quantized()) return "none";
  std::string inputs = "unquantized";
  if (activations != QuantType::kNo) {
    inputs = activation_dtype == weight_dtype
                 ? ""
                 : std::string(quant_dtype_name(activation_dtype)) + " ";
    inputs += quant_type_name(activations);
    inputs += static_activations ? " (static)" : " (dynamic)";
  }
  return fmt::format("{} weights {}{}, activations {}",
                     quant_dtype_name(weight_dtype),
                     quant_type_name(weights),
                     online ? " (made when loading)" : "",
                     inputs);
}

QuantScheme QuantConfig::scheme_of(std::string_view module) const {
  if (any_matches(ignored, module)) return {};
  for (const Group& group : groups) {
    if (any_matches(group.targets, module)) return group.scheme;
  }
  return {};
}

std::string QuantConfig::to_string() const {
  return groups.empty() ? "none" : groups.front().scheme.to_string();
}

QuantConfig online_fp8_config() {
  QuantScheme scheme;
  scheme.weights = QuantType::kPerToken;
  scheme.activations = QuantType::kPerToken;
  scheme.online = true;
  QuantConfig config;
  config.method = "fp8";
  config.groups.push_back({every_linear(), scheme});
  return config;
}

Result<QuantConfig> parse_quant_config(const Json& json) {
  if (json.is_null()) return QuantConfig();
  if (!json.is_object()) {
    return invalid_argument("config.json: 'quantization_config' is no object");
  }
  const ConfigReader reader(json, "config.json, quantization_config");
  if (!reader.has("quant_method")) {
    return invalid_argument("{}: missing 'quant_method' (a string, the name of the format)",
                            reader.where());
  }
  ASSIGN_OR_RETURN(const std::string method, reader.get_string("quant_method", ""));
  if (std::find(kKnownMethods.begin(), kKnownMethods.end(), method) == kKnownMethods.end()) {
    return reader.wrong("quant_method",
                        *reader.find("quant_method"),
                        fmt::format("one of {}", fmt::join(kKnownMethods, ", ")));
  }
  QuantConfig config;
  config.method = method;
  config.raw = std::make_shared<const Json>(json);
  if (method == "fp8") {
    RETURN_IF_ERROR(parse_fp8(reader, &config));
  } else if (method == "compressed-tensors") {
    RETURN_IF_ERROR(parse_compressed_tensors(reader, &config));
  } else {
    return unimplemented(
        "config.json: quantization method '{}' is not supported yet; supported are fp8 and "
        "compressed-tensors (FP8), and unquantized checkpoints (bfloat16, float16 or float32)",
        method);
  }
  return config;
}

}  // namespace atom
