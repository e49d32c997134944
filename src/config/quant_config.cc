#include "config/quant_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "config/config_reader.h"
#include "config/parse_compressed_tensors.h"
#include "config/parse_quark.h"

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

// "weight_block_size": [128, 128], or none. A scale of each block of the weight goes with one for
// each 128 activations.
Status parse_fp8_blocks(const ConfigReader& reader, QuantScheme* scheme) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> block,
                   reader.get_ints("weight_block_size", 1, 1 << 20, 2));
  if (block.empty()) return {};
  if (block != std::vector<int64_t>{128, 128}) {
    return unimplemented(
        "{}: FP8 weights in blocks of {} ('weight_block_size') are not supported; supported are "
        "blocks of 128 x 128, and one scale per tensor",
        reader.where(),
        fmt::join(block, " x "));
  }
  if (scheme->static_activations) {
    return unimplemented(
        "{}: static activations ('activation_scheme') with FP8 weights in blocks are not supported",
        reader.where());
  }
  scheme->weights = QuantType::kPer128x128;
  scheme->activations = QuantType::kPer1x128;
  return {};
}

// "quant_method": "fp8", as transformers and vLLM write it.
Status parse_fp8(const ConfigReader& reader, QuantConfig* config) {
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
  RETURN_IF_ERROR(parse_fp8_blocks(reader, &scheme));
  config->groups.push_back({every_linear(), scheme});
  config->ignored = never_quantized();
  for (const char* key : {"modules_to_not_convert", "ignored_layers"}) {
    ASSIGN_OR_RETURN(const std::vector<ModulePattern> patterns, read_module_patterns(reader, key));
    config->ignored.insert(config->ignored.end(), patterns.begin(), patterns.end());
  }
  return {};
}

// "quant_method": "mxfp4", as gpt-oss has it: experts in FP4, everything else as it is.
Status parse_mxfp4(const ConfigReader& reader, QuantConfig* config) {
  const QuantScheme scheme = {.weights = QuantType::kPer1x32,
                              .weight_dtype = QuantDType::kFloat4E2M1};
  ASSIGN_OR_RETURN(const ModulePattern experts, ModulePattern::parse("*.mlp.experts*"));
  config->groups.push_back({{experts}, scheme});
  ASSIGN_OR_RETURN(config->ignored, read_module_patterns(reader, "modules_to_not_convert"));
  return {};
}

struct Parser {
  std::string_view method;
  Status (*parse)(const ConfigReader& reader, QuantConfig* config);
};

constexpr Parser kParsers[] = {{"fp8", parse_fp8},
                               {"compressed-tensors", parse_compressed_tensors},
                               {"quark", parse_quark},
                               {"mxfp4", parse_mxfp4}};

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

Result<QuantConfig> parse_quant_config(const Json& json) {
  if (json.is_null()) return QuantConfig();
  if (!json.is_object()) {
    return invalid_argument("config.json: 'quantization_config' is not an object");
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
  for (const Parser& parser : kParsers) {
    if (method != parser.method) continue;
    RETURN_IF_ERROR(parser.parse(reader, &config));
    return config;
  }
  return unimplemented(
      "config.json: quantization method '{}' is not supported; supported are fp8, "
      "compressed-tensors, quark and mxfp4, and unquantized checkpoints (bfloat16, float16 or "
      "float32)",
      method);
}

}  // namespace atom
