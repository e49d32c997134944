#include "config/parse_compressed_tensors.h"

#include <nlohmann/json.hpp>

namespace atom {
namespace {

constexpr size_t kMaxPatterns = 100'000;
constexpr size_t kMaxGroups = 64;
constexpr const char* kSupported =
    "supported are weights in FP8 (8-bit float, per tensor, channel or block of 128 x 128), INT8 "
    "(8-bit int, per tensor or channel), INT4 (4-bit int, per group of 32 or 128) and MXFP4 (4-bit "
    "float, per group of 32), symmetric, with activations that stay as they are or match them";

// What compressed-tensors calls QuantizationArgs, with its defaults.
struct QuantArgs {
  int64_t num_bits = 8;
  std::string type;
  std::string strategy;
  bool symmetric = true;
  bool dynamic = false;

  int64_t group_size = 0;
  std::vector<int64_t> block;

  bool is(int64_t bits, std::string_view kind) const {
    return num_bits == bits && type == kind && symmetric;
  }
  bool is_fp8() const { return is(8, "float"); }
  bool is_group_of(int64_t size) const { return strategy == "group" && group_size == size; }
  std::string to_string() const {
    return fmt::format("{}-bit {} {}per {}{}",
                       num_bits,
                       type,
                       symmetric ? "" : "asymmetric ",
                       strategy,
                       dynamic ? " (dynamic)" : "");
  }
};

// "block_structure": [128, 128] or "128x128"; empty when missing.
Result<std::vector<int64_t>> read_block(const ConfigReader& reader) {
  const Json* json = reader.find("block_structure");
  if (json == nullptr || !json->is_string()) {
    return reader.get_ints("block_structure", 1, 1 << 20, 2);
  }
  if (*json == "128x128") return std::vector<int64_t>{128, 128};
  return reader.wrong("block_structure", *json, "[rows, columns]");
}

// Columns in another order bring an index of groups along.
Status check_order(const ConfigReader& reader) {
  const Json* order = reader.find("actorder");
  if (order == nullptr || *order == false || *order == "weight" || *order == "static") return {};
  return unimplemented(
      "{}: 'actorder' {} is not supported; {}", reader.where(), order->dump(), kSupported);
}

Result<QuantArgs> read_args(const ConfigReader& reader) {
  QuantArgs args;
  ASSIGN_OR_RETURN(args.num_bits, reader.get_int("num_bits", 1, 64, 8));
  ASSIGN_OR_RETURN(args.type, reader.get_string("type", "int"));
  ASSIGN_OR_RETURN(args.symmetric, reader.get_bool("symmetric", true));
  ASSIGN_OR_RETURN(const int64_t group, reader.get_int("group_size", -1, 1 << 20, 0));
  args.group_size = group;
  ASSIGN_OR_RETURN(args.block, read_block(reader));
  RETURN_IF_ERROR(check_order(reader));
  ASSIGN_OR_RETURN(args.strategy,
                   reader.get_string("strategy",
                                     group == 0  ? "tensor"
                                     : group < 0 ? "channel"
                                                 : "group"));
  if (const Json* dynamic = reader.find("dynamic"); dynamic != nullptr && dynamic->is_string()) {
    return unimplemented(
        "{}: 'dynamic' {} is not supported; {}", reader.where(), dynamic->dump(), kSupported);
  }
  ASSIGN_OR_RETURN(args.dynamic, reader.get_bool("dynamic", false));
  return args;
}

Status unsupported(const ConfigReader& reader, const char* what, const QuantArgs& args) {
  return unimplemented(
      "{}: {} of {} are not supported; {}", reader.where(), what, args.to_string(), kSupported);
}

// A way to store and compute a weight.
struct WeightFormat {
  bool (*matches)(const QuantArgs& weights);
  QuantDType dtype;
  QuantType granularity;
  std::string_view format;  // of files that store it
};

constexpr WeightFormat kWeightFormats[] = {
    {[](const QuantArgs& w) { return w.is_fp8() && w.strategy == "tensor"; },
     QuantDType::kFloat8E4M3,
     QuantType::kPerTensor,
     "float-quantized"},
    {[](const QuantArgs& w) { return w.is_fp8() && w.strategy == "channel"; },
     QuantDType::kFloat8E4M3,
     QuantType::kPerToken,
     "float-quantized"},
    {[](const QuantArgs& w) {
       return w.is_fp8() && w.strategy == "block" && w.block == std::vector<int64_t>{128, 128};
     },
     QuantDType::kFloat8E4M3,
     QuantType::kPer128x128,
     "float-quantized"},
    {[](const QuantArgs& w) { return w.is(8, "int") && w.strategy == "tensor"; },
     QuantDType::kInt8,
     QuantType::kPerTensor,
     "int-quantized"},
    {[](const QuantArgs& w) { return w.is(8, "int") && w.strategy == "channel"; },
     QuantDType::kInt8,
     QuantType::kPerToken,
     "int-quantized"},
    {[](const QuantArgs& w) { return w.is(4, "int") && w.is_group_of(128); },
     QuantDType::kInt4,
     QuantType::kPer1x128,
     "pack-quantized"},
    {[](const QuantArgs& w) { return w.is(4, "int") && w.is_group_of(32); },
     QuantDType::kInt4,
     QuantType::kPer1x32,
     "pack-quantized"},
    {[](const QuantArgs& w) { return w.is(4, "float") && w.is_group_of(32); },
     QuantDType::kFloat4E2M1,
     QuantType::kPer1x32,
     "mxfp4-pack-quantized"},
};

const WeightFormat* find_format(const QuantArgs& weights) {
  if (weights.dynamic) return nullptr;
  for (const WeightFormat& format : kWeightFormats) {
    if (format.matches(weights)) return &format;
  }
  return nullptr;
}

// The format of a group's files: its own, or that of all. Plain ones store 8 bits alike.
Status check_format(const ConfigReader& group,
                    const std::string& common_format,
                    const WeightFormat& expected) {
  ASSIGN_OR_RETURN(const std::string own, group.get_string("format", ""));
  const std::string& format = own.empty() ? common_format : own;
  const bool has_eight_bits =
      expected.dtype == QuantDType::kFloat8E4M3 || expected.dtype == QuantDType::kInt8;
  if (format.empty() || format == expected.format) return {};
  if (has_eight_bits && format == "naive-quantized") return {};
  return unimplemented("{}: such weights in 'format' '{}' are not supported; expected '{}'",
                       group.where(),
                       format,
                       expected.format);
}

// Whether activations of this kind go with the scheme's weights; fills them in.
bool set_inputs(const QuantArgs& inputs, QuantScheme* scheme) {
  const bool per_tensor = inputs.strategy == "tensor";
  const bool per_token = inputs.strategy == "token" && inputs.dynamic;
  if (scheme->weights == QuantType::kPer128x128) {
    if (!inputs.is_fp8() || !inputs.is_group_of(128) || !inputs.dynamic) return false;
    scheme->activations = QuantType::kPer1x128;
    return true;
  }
  if (inputs.is(4, "float")) {
    const bool is_fp4_weight = scheme->weight_dtype == QuantDType::kFloat4E2M1;
    if (!is_fp4_weight || !inputs.is_group_of(32) || !inputs.dynamic) return false;
    scheme->activations = QuantType::kPer1x32;
    scheme->activation_dtype = QuantDType::kFloat4E2M1;
    return true;
  }
  const bool is_int8 = inputs.is(8, "int");
  if (!(is_int8 || inputs.is_fp8()) || !(per_tensor || per_token)) return false;
  if (is_int8 != (scheme->weight_dtype == QuantDType::kInt8)) return false;
  // A dynamic scale is per token in either case: per tensor it would depend on the batch.
  scheme->static_activations = !inputs.dynamic;
  scheme->activations = inputs.dynamic ? QuantType::kPerToken : QuantType::kPerTensor;
  scheme->activation_dtype = is_int8 ? QuantDType::kInt8 : QuantDType::kFloat8E4M3;
  return true;
}

Result<QuantScheme> read_scheme(const ConfigReader& group, const std::string& common_format) {
  QuantScheme scheme;
  ASSIGN_OR_RETURN(const Json* weights_json, group.get_object("weights"));
  if (weights_json == nullptr) return scheme;
  ASSIGN_OR_RETURN(const QuantArgs weights,
                   read_args(ConfigReader(*weights_json, group.where() + ".weights")));
  const WeightFormat* format = find_format(weights);
  if (format == nullptr) return unsupported(group, "weights", weights);
  RETURN_IF_ERROR(check_format(group, common_format, *format));
  scheme.weights = format->granularity;
  scheme.weight_dtype = format->dtype;

  ASSIGN_OR_RETURN(const Json* inputs_json, group.get_object("input_activations"));
  if (group.has("output_activations")) {
    return unimplemented(
        "{}: 'output_activations' are not supported; {}", group.where(), kSupported);
  }
  if (inputs_json == nullptr) return scheme;
  ASSIGN_OR_RETURN(const QuantArgs inputs,
                   read_args(ConfigReader(*inputs_json, group.where() + ".input_activations")));
  if (!set_inputs(inputs, &scheme)) return unsupported(group, "input activations", inputs);
  return scheme;
}

Status read_kv_cache_scheme(const ConfigReader& reader, QuantConfig* config) {
  ASSIGN_OR_RETURN(const Json* json, reader.get_object("kv_cache_scheme"));
  if (json == nullptr) return {};
  const ConfigReader scheme(*json, reader.where() + ".kv_cache_scheme");
  ASSIGN_OR_RETURN(const QuantArgs args, read_args(scheme));
  if (!args.is_fp8() || args.strategy != "tensor" || args.dynamic) {
    return unimplemented("{}: {} is not supported; supported is FP8 (8-bit float) per tensor",
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
      return unimplemented("{}: '{}' is not supported", reader.where(), key);
    }
  }
  ASSIGN_OR_RETURN(std::string format, reader.get_string("format", ""));
  if (format == "mixed-precision") format.clear();  // each group says its own
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
    ASSIGN_OR_RETURN(group.scheme, read_scheme(group_reader, format));
    config->groups.push_back(std::move(group));
  }
  ASSIGN_OR_RETURN(config->ignored, read_module_patterns(reader, "ignore"));
  return read_kv_cache_scheme(reader, config);
}

}  // namespace atom
