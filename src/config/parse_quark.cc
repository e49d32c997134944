#include "config/parse_quark.h"

#include <nlohmann/json.hpp>

#include "config/parse_compressed_tensors.h"

namespace atom {
namespace {

constexpr size_t kMaxQuarkLayers = 100'000;
constexpr const char* kSupportedByQuark =
    "supported are fp8_e4m3 weights (per_tensor, per_channel, or per_block of 128 x 128), fp4 "
    "weights per_group of 32 with e8m0 scales, and int8 weights (per_tensor, per_channel)";

// What Quark calls a QTensorConfig.
struct TensorSpec {
  std::string dtype;
  std::string scheme;
  int64_t group_size = 0;
  std::vector<int64_t> block;
  bool is_dynamic = false;

  std::string to_string() const {
    return fmt::format("{} {}{}{}",
                       dtype,
                       scheme,
                       group_size > 0 ? fmt::format(" of {}", group_size) : "",
                       is_dynamic ? " (dynamic)" : "");
  }
};

Result<TensorSpec> read_spec(const ConfigReader& reader) {
  TensorSpec spec;
  ASSIGN_OR_RETURN(spec.dtype, reader.get_string("dtype", ""));
  ASSIGN_OR_RETURN(spec.scheme, reader.get_string("qscheme", ""));
  ASSIGN_OR_RETURN(spec.group_size, reader.get_int("group_size", 0, 1 << 20, 0));
  ASSIGN_OR_RETURN(spec.block, reader.get_ints("block_size", 1, 1 << 20, 2));
  ASSIGN_OR_RETURN(spec.is_dynamic, reader.get_bool("is_dynamic", false));
  ASSIGN_OR_RETURN(const bool is_symmetric, reader.get_bool("symmetric", true));
  ASSIGN_OR_RETURN(const std::string scales, reader.get_string("scale_format", ""));
  if (!is_symmetric) {
    return unimplemented("{}: zero points ('symmetric' false) are not supported; {}",
                         reader.where(),
                         kSupportedByQuark);
  }
  if (spec.dtype == "fp4" && scales != "e8m0") {
    return unimplemented("{}: fp4 with 'scale_format' '{}' is not supported; {}",
                         reader.where(),
                         scales,
                         kSupportedByQuark);
  }
  return spec;
}

Status unsupported(const ConfigReader& reader, const char* what, const TensorSpec& spec) {
  return unimplemented("{}: {} of {} are not supported; {}",
                       reader.where(),
                       what,
                       spec.to_string(),
                       kSupportedByQuark);
}

// The object under `key`; null when missing. Two quantizations on top of each other are a list.
Result<const Json*> spec_json(const ConfigReader& reader, std::string_view key) {
  const Json* json = reader.find(key);
  if (json != nullptr && json->is_array()) {
    return unimplemented("{}: '{}' in two levels (a list) is not supported; {}",
                         reader.where(),
                         key,
                         kSupportedByQuark);
  }
  return reader.get_object(key);
}

Status set_weights(const ConfigReader& reader, const TensorSpec& spec, QuantScheme* scheme) {
  if (spec.is_dynamic) return unsupported(reader, "weights", spec);
  if (spec.dtype == "fp4") {
    if (spec.scheme != "per_group" || spec.group_size != 32) {
      return unsupported(reader, "weights", spec);
    }
    scheme->weight_dtype = QuantDType::kFloat4E2M1;
    scheme->weights = QuantType::kPer1x32;
    return {};
  }
  const bool is_fp8 = spec.dtype == "fp8_e4m3";
  if (!is_fp8 && spec.dtype != "int8") return unsupported(reader, "weights", spec);
  scheme->weight_dtype = is_fp8 ? QuantDType::kFloat8E4M3 : QuantDType::kInt8;
  if (spec.scheme == "per_tensor") {
    scheme->weights = QuantType::kPerTensor;
  } else if (spec.scheme == "per_channel") {
    scheme->weights = QuantType::kPerToken;
  } else if (is_fp8 && spec.scheme == "per_block" && spec.block == std::vector<int64_t>{128, 128}) {
    scheme->weights = QuantType::kPer128x128;
  } else {
    return unsupported(reader, "weights", spec);
  }
  return {};
}

// Activations are quantized in groups as the weight is.
Status set_grouped_inputs(const ConfigReader& reader, const TensorSpec& spec, QuantScheme* scheme) {
  const bool in_blocks = scheme->weights == QuantType::kPer128x128;
  const bool fits = in_blocks ? spec.dtype == "fp8_e4m3" && spec.group_size == 128
                              : spec.dtype == "fp4" && spec.group_size == 32;
  if (!fits || spec.scheme != "per_group" || !spec.is_dynamic) {
    return unsupported(reader, "input_tensors", spec);
  }
  scheme->activations = in_blocks ? QuantType::kPer1x128 : QuantType::kPer1x32;
  scheme->activation_dtype = in_blocks ? QuantDType::kFloat8E4M3 : QuantDType::kFloat4E2M1;
  return {};
}

Status set_inputs(const ConfigReader& reader, const TensorSpec& spec, QuantScheme* scheme) {
  const bool is_fp8 = spec.dtype == "fp8_e4m3";
  const bool is_fp4_weight = scheme->weight_dtype == QuantDType::kFloat4E2M1;
  if (scheme->weights == QuantType::kPer128x128 || (is_fp4_weight && !is_fp8)) {
    return set_grouped_inputs(reader, spec, scheme);
  }
  const bool same = is_fp8 == (scheme->weight_dtype != QuantDType::kInt8);
  const bool per_token = spec.scheme == "per_channel" || spec.scheme == "per_token";
  if (!same || (!is_fp8 && spec.dtype != "int8") || !(per_token || spec.scheme == "per_tensor") ||
      (per_token && !spec.is_dynamic)) {
    return unsupported(reader, "input_tensors", spec);
  }
  // A dynamic scale is per token in either case: per tensor it would depend on the batch.
  scheme->static_activations = !spec.is_dynamic;
  scheme->activations = spec.is_dynamic ? QuantType::kPerToken : QuantType::kPerTensor;
  scheme->activation_dtype = is_fp8 ? QuantDType::kFloat8E4M3 : QuantDType::kInt8;
  return {};
}

// Outputs are quantized only where they go into the KV cache.
Status read_outputs(const ConfigReader& reader, std::string_view pattern, QuantConfig* config) {
  ASSIGN_OR_RETURN(const Json* json, spec_json(reader, "output_tensors"));
  if (json == nullptr) return {};
  const ConfigReader outputs(*json, reader.where() + ".output_tensors");
  ASSIGN_OR_RETURN(const TensorSpec spec, read_spec(outputs));
  const bool is_cache = pattern.ends_with("k_proj") || pattern.ends_with("v_proj");
  if (!is_cache || spec.dtype != "fp8_e4m3" || spec.scheme != "per_tensor" || spec.is_dynamic) {
    return unsupported(reader, "output_tensors", spec);
  }
  config->fp8_kv_cache = true;
  return {};
}

Result<QuantScheme> read_layer(const ConfigReader& reader,
                               std::string_view pattern,
                               QuantConfig* config) {
  QuantScheme scheme;
  RETURN_IF_ERROR(read_outputs(reader, pattern, config));
  ASSIGN_OR_RETURN(const Json* bias, spec_json(reader, "bias"));
  if (bias != nullptr) {
    return unimplemented("{}: a quantized 'bias' is not supported", reader.where());
  }
  ASSIGN_OR_RETURN(const Json* weight_json, spec_json(reader, "weight"));
  if (weight_json == nullptr) return scheme;
  ASSIGN_OR_RETURN(const TensorSpec weight,
                   read_spec(ConfigReader(*weight_json, reader.where() + ".weight")));
  RETURN_IF_ERROR(set_weights(reader, weight, &scheme));
  ASSIGN_OR_RETURN(const Json* inputs_json, spec_json(reader, "input_tensors"));
  if (inputs_json == nullptr) return scheme;
  ASSIGN_OR_RETURN(const TensorSpec inputs,
                   read_spec(ConfigReader(*inputs_json, reader.where() + ".input_tensors")));
  RETURN_IF_ERROR(set_inputs(reader, inputs, &scheme));
  return scheme;
}

Status read_layers(const ConfigReader& reader, QuantConfig* config) {
  ASSIGN_OR_RETURN(const Json* types, reader.get_object("layer_type_quant_config"));
  if (types != nullptr && !types->empty()) {
    return unimplemented("{}: 'layer_type_quant_config' is not supported", reader.where());
  }
  ASSIGN_OR_RETURN(const Json* layers, reader.get_object("layer_quant_config"));
  if (layers == nullptr) return {};
  if (layers->size() > kMaxQuarkLayers) {
    return invalid_argument(
        "{}: 'layer_quant_config' has more than {} entries", reader.where(), kMaxQuarkLayers);
  }
  for (const auto& [text, json] : layers->items()) {
    const std::string where = fmt::format("{}.layer_quant_config.{}", reader.where(), text);
    if (!json.is_object()) return invalid_argument("{}: expected an object", where);
    ASSIGN_OR_RETURN(ModulePattern pattern, ModulePattern::parse(text));
    ASSIGN_OR_RETURN(const QuantScheme scheme, read_layer(ConfigReader(json, where), text, config));
    config->groups.push_back({{std::move(pattern)}, scheme});
  }
  return {};
}

Status read_export(const ConfigReader& reader) {
  ASSIGN_OR_RETURN(const Json* json, reader.get_object("export"));
  if (json == nullptr) return {};
  const ConfigReader exported(*json, reader.where() + ".export");
  ASSIGN_OR_RETURN(const std::string format,
                   exported.get_string("weight_format", "real_quantized"));
  if (format != "real_quantized") {
    return unimplemented("{}: 'weight_format' '{}' is not supported; supported is real_quantized",
                         exported.where(),
                         format);
  }
  return {};
}

}  // namespace

Status parse_quark(const ConfigReader& reader, QuantConfig* config) {
  RETURN_IF_ERROR(read_export(reader));
  RETURN_IF_ERROR(read_layers(reader, config));
  ASSIGN_OR_RETURN(const Json* global, reader.get_object("global_quant_config"));
  if (global != nullptr) {
    const ConfigReader global_reader(*global, reader.where() + ".global_quant_config");
    ASSIGN_OR_RETURN(const QuantScheme scheme, read_layer(global_reader, "", config));
    config->groups.push_back({every_linear(), scheme});
  }
  if (config->groups.empty()) {
    return invalid_argument("{}: missing 'global_quant_config' (how layers are quantized)",
                            reader.where());
  }
  ASSIGN_OR_RETURN(config->ignored, read_module_patterns(reader, "exclude"));
  ASSIGN_OR_RETURN(const Json* cache, reader.get_object("kv_cache_quant_config"));
  if (cache != nullptr && !cache->empty()) config->fp8_kv_cache = true;
  return {};
}

}  // namespace atom
