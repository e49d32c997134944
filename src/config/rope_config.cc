#include "config/rope_config.h"

#include <nlohmann/json.hpp>

#include "config/config_reader.h"
#include "config/model_config.h"
#include "config/parse_rope_config.h"

namespace atom {
namespace {

constexpr double kMaxFactor = 1e6;
constexpr int64_t kMaxPositions = int64_t{1} << 30;

Result<RopeType> parse_rope_type(const ConfigReader& rope) {
  const char* key = rope.has("rope_type") ? "rope_type" : "type";
  ASSIGN_OR_RETURN(const std::string name, rope.get_string(key, "default"));
  // "mrope" is the default rotation with sections that text-only positions make equal.
  if (name == "default" || name == "mrope") return RopeType::kDefault;
  if (name == "linear") return RopeType::kLinear;
  if (name == "dynamic") return RopeType::kDynamic;
  if (name == "llama3") return RopeType::kLlama3;
  if (name == "yarn") return RopeType::kYarn;
  if (name == "longrope" || name == "su") return RopeType::kLongRope;
  return rope.wrong(
      key, *rope.find(key), "one of default, linear, dynamic, llama3, yarn, longrope");
}

// One object per layer type instead of one for all.
bool is_nested(const Json& rope, const ConfigReader& config) {
  const Json* layer_types = config.find("layer_types");
  if (rope.empty() || layer_types == nullptr || !layer_types->is_array()) return false;
  for (const auto& [key, value] : rope.items()) {
    bool is_label = false;
    for (const Json& label : *layer_types) is_label = is_label || label == key;
    if (!is_label) return false;
  }
  return true;
}

Status read_llama3(const ConfigReader& rope, RopeConfig* out) {
  ASSIGN_OR_RETURN(
      out->low_freq_factor,
      rope.require_double("low_freq_factor", 1e-6, kMaxFactor, "of the llama3 rope type"));
  ASSIGN_OR_RETURN(
      out->high_freq_factor,
      rope.require_double("high_freq_factor", 1e-6, kMaxFactor, "of the llama3 rope type"));
  if (out->high_freq_factor <= out->low_freq_factor) {
    return invalid_argument("{}: 'high_freq_factor' {} must be greater than 'low_freq_factor' {}",
                            rope.where(),
                            out->high_freq_factor,
                            out->low_freq_factor);
  }
  return {};
}

Status read_yarn(const ConfigReader& rope, RopeConfig* out) {
  ASSIGN_OR_RETURN(out->beta_fast, rope.get_double("beta_fast", 0, kMaxFactor, 32));
  ASSIGN_OR_RETURN(out->beta_slow, rope.get_double("beta_slow", 0, kMaxFactor, 1));
  if (out->beta_fast == 0) out->beta_fast = 32;
  if (out->beta_slow == 0) out->beta_slow = 1;
  ASSIGN_OR_RETURN(out->truncate, rope.get_bool("truncate", true));
  ASSIGN_OR_RETURN(out->mscale, rope.get_double("mscale", 0, kMaxFactor, 0));
  ASSIGN_OR_RETURN(out->mscale_all_dim, rope.get_double("mscale_all_dim", 0, kMaxFactor, 0));
  return {};
}

Status read_longrope(const ConfigReader& rope, RopeConfig* out) {
  const size_t num_pairs = static_cast<size_t>(out->rotary_dim) / 2;
  const auto read = [&](const char* key, std::vector<double>* factors) -> Status {
    ASSIGN_OR_RETURN(*factors, rope.get_doubles(key, 4096));
    if (factors->size() != num_pairs) {
      return invalid_argument("{}: '{}' has {} numbers; expected {}, one per rotated pair",
                              rope.where(),
                              key,
                              factors->size(),
                              num_pairs);
    }
    for (double factor : *factors) {
      if (factor > 0 && factor <= kMaxFactor) continue;
      return invalid_argument("{}: '{}' contains {}; expected numbers in (0, {:g}]",
                              rope.where(),
                              key,
                              factor,
                              kMaxFactor);
    }
    return {};
  };
  RETURN_IF_ERROR(read("short_factor", &out->short_factor));
  return read("long_factor", &out->long_factor);
}

Status read_factor(const ConfigReader& rope, RopeConfig* out) {
  if (out->type == RopeType::kDefault) return {};
  if (out->type == RopeType::kYarn || out->type == RopeType::kLongRope) {
    const double extension = static_cast<double>(out->max_position_embeddings) /
                             static_cast<double>(out->original_max_position_embeddings);
    ASSIGN_OR_RETURN(out->factor, rope.get_double("factor", 1e-6, kMaxFactor, extension));
    return {};
  }
  ASSIGN_OR_RETURN(
      out->factor,
      rope.require_double("factor", 1e-6, kMaxFactor, "how far the context is extended"));
  return {};
}

}  // namespace

const char* rope_type_name(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return "default";
    case RopeType::kLinear:
      return "linear";
    case RopeType::kDynamic:
      return "dynamic";
    case RopeType::kLlama3:
      return "llama3";
    case RopeType::kYarn:
      return "yarn";
    case RopeType::kLongRope:
      return "longrope";
  }
  return "?";
}

Result<RopeConfig> parse_rope_config(const ConfigReader& config,
                                     const ModelConfigDefaults& defaults,
                                     int32_t head_dim,
                                     int32_t max_position_embeddings) {
  static const Json kEmpty = Json::object();
  const char* key = "rope_scaling";
  ASSIGN_OR_RETURN(const Json* parameters, config.get_object(key));
  if (parameters == nullptr || parameters->empty()) {
    key = "rope_parameters";
    ASSIGN_OR_RETURN(parameters, config.get_object(key));
  }
  if (parameters == nullptr) parameters = &kEmpty;
  if (is_nested(*parameters, config)) {
    return unimplemented(
        "{}: '{}' differs by layer type, which is not supported yet", config.where(), key);
  }
  const ConfigReader rope(*parameters, fmt::format("{}, {}", config.where(), key));

  RopeConfig result;
  result.max_position_embeddings = max_position_embeddings;
  ASSIGN_OR_RETURN(result.type, parse_rope_type(rope));
  const ConfigReader& theta_source = rope.has("rope_theta") ? rope : config;
  ASSIGN_OR_RETURN(result.theta,
                   theta_source.get_double("rope_theta", 1.001, 1e15, defaults.rope_theta));
  const ConfigReader& partial_source = rope.has("partial_rotary_factor") ? rope : config;
  ASSIGN_OR_RETURN(result.partial_rotary_factor,
                   partial_source.get_double(
                       "partial_rotary_factor", 1e-3, 1.0, defaults.partial_rotary_factor));
  result.rotary_dim = static_cast<int32_t>(head_dim * result.partial_rotary_factor);
  if (result.rotary_dim < 2 || result.rotary_dim % 2 != 0) {
    return invalid_argument(
        "{}: head_dim {} times partial_rotary_factor {} rotates {} dimensions; expected an even "
        "number of at least 2",
        config.where(),
        head_dim,
        result.partial_rotary_factor,
        result.rotary_dim);
  }

  const char* original_key = "original_max_position_embeddings";
  const ConfigReader& original_source = config.has(original_key) ? config : rope;
  ASSIGN_OR_RETURN(
      const int64_t original,
      original_source.get_int(original_key, 1, kMaxPositions, max_position_embeddings));
  result.original_max_position_embeddings = static_cast<int32_t>(original);

  RETURN_IF_ERROR(read_factor(rope, &result));
  if (result.type == RopeType::kLlama3) RETURN_IF_ERROR(read_llama3(rope, &result));
  if (result.type == RopeType::kYarn) RETURN_IF_ERROR(read_yarn(rope, &result));
  if (result.type == RopeType::kLongRope) RETURN_IF_ERROR(read_longrope(rope, &result));
  if (rope.has("attention_factor")) {
    ASSIGN_OR_RETURN(result.attention_factor,
                     rope.get_double("attention_factor", 1e-6, kMaxFactor, 1));
  }
  ASSIGN_OR_RETURN(result.llama_4_scaling_beta,
                   rope.get_double("llama_4_scaling_beta", 0, kMaxFactor, 0));
  return result;
}

}  // namespace atom
