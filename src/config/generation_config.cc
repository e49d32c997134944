#include "config/generation_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cfloat>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "config/config_reader.h"

namespace atom {
namespace {

constexpr const char* kGenerationFile = "generation_config.json";

// The rules of the parameters that the file gives defaults of.
namespace rules {
#define SAMPLING_FIELD(type, name, initial, rule, takers, help) \
  [[maybe_unused]] constexpr auto name = rule;
#include "config/sampling_fields.def"
#undef SAMPLING_FIELD
}  // namespace rules

Status read(const ConfigReader& reader,
            const char* key,
            const NumberRange& range,
            std::optional<float>* out) {
  if (!reader.has(key)) return {};
  constexpr double kPositive = 1e-6;
  ASSIGN_OR_RETURN(
      const double value,
      reader.get_double(key, range.excludes_min ? range.min + kPositive : range.min, range.max, 0));
  *out = static_cast<float>(value);
  return {};
}

Status read(const ConfigReader& reader,
            const char* key,
            const IntegerRange& range,
            std::optional<int32_t>* out) {
  if (!reader.has(key)) return {};
  ASSIGN_OR_RETURN(const int64_t value, reader.get_int(key, range.min, range.max, 0));
  *out = static_cast<int32_t>(value);
  return {};
}

}  // namespace

void GenerationConfig::apply_to(SamplingParams* params) const {
  if (temperature) params->temperature = *temperature;
  if (top_k) params->top_k = *top_k;
  if (top_p) params->top_p = *top_p;
  if (min_p) params->min_p = *min_p;
  if (repetition_penalty) params->repetition_penalty = *repetition_penalty;
  if (max_new_tokens) params->max_tokens = *max_new_tokens;
}

Result<GenerationConfig> parse_generation_config(const Json& json, int64_t vocab_size) {
  if (!json.is_object()) return invalid_argument("{}: expected a JSON object", kGenerationFile);
  const ConfigReader reader(json, kGenerationFile);
  GenerationConfig config;
  RETURN_IF_ERROR(read(reader, "temperature", rules::temperature, &config.temperature));
  RETURN_IF_ERROR(read(reader, "top_k", rules::top_k, &config.top_k));
  RETURN_IF_ERROR(read(reader, "top_p", rules::top_p, &config.top_p));
  RETURN_IF_ERROR(read(reader, "min_p", rules::min_p, &config.min_p));
  RETURN_IF_ERROR(
      read(reader, "repetition_penalty", rules::repetition_penalty, &config.repetition_penalty));
  RETURN_IF_ERROR(read(reader, "max_new_tokens", rules::max_tokens, &config.max_new_tokens));

  if (reader.has("do_sample")) {
    ASSIGN_OR_RETURN(config.do_sample, reader.get_bool("do_sample", false));
  }
  RETURN_IF_ERROR(read(reader,
                       "bos_token_id",
                       IntegerRange{0, static_cast<int32_t>(vocab_size - 1)},
                       &config.bos_token_id));
  ASSIGN_OR_RETURN(const std::vector<int64_t> eos,
                   reader.get_ints("eos_token_id", 0, vocab_size - 1, 64));
  for (int64_t id : eos) config.eos_token_ids.push_back(static_cast<int32_t>(id));
  // Never computed with; -1 or the id after the last says "none".
  ASSIGN_OR_RETURN(const int64_t pad, reader.get_int("pad_token_id", -1, INT32_MAX, -1));
  if (pad >= 0 && pad < vocab_size) config.pad_token_id = static_cast<int32_t>(pad);
  return config;
}

Result<GenerationConfig> load_generation_config(const std::string& folder, int64_t vocab_size) {
  const std::string path = folder + "/" + kGenerationFile;
  if (!file_exists(path)) return GenerationConfig();
  JsonLimits limits;
  limits.max_bytes = size_t{4} << 20;
  ASSIGN_OR_RETURN(const Json json, read_json_file(path, limits));
  return parse_generation_config(json, vocab_size);
}

namespace {

// The six defaults; null ones of `from` change nothing.
void lay_over(const GenerationConfig& from, GenerationConfig* config) {
  if (from.temperature) config->temperature = from.temperature;
  if (from.top_k) config->top_k = from.top_k;
  if (from.top_p) config->top_p = from.top_p;
  if (from.min_p) config->min_p = from.min_p;
  if (from.repetition_penalty) config->repetition_penalty = from.repetition_penalty;
  if (from.max_new_tokens) config->max_new_tokens = from.max_new_tokens;
}

Result<GenerationConfig> parse_override(const std::string& text, int64_t vocab_size) {
  constexpr const char* kFlag = "--override-generation-config";
  constexpr std::string_view kKeys[] = {
      "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "max_new_tokens"};
  ASSIGN_OR_RETURN(const Json json, parse_json(text, kFlag));
  if (!json.is_object()) return invalid_argument("{}: expected a JSON object", kFlag);
  for (auto entry = json.begin(); entry != json.end(); ++entry) {
    if (std::ranges::find(kKeys, entry.key()) != std::end(kKeys)) continue;
    return invalid_argument(
        "{}: unknown key '{}'; expected one of {}", kFlag, entry.key(), fmt::join(kKeys, ", "));
  }
  Result<GenerationConfig> config = parse_generation_config(json, vocab_size);
  if (!config.ok()) return config.status().with_context(kFlag);
  return config;
}

}  // namespace

Result<GenerationConfig> load_generation_config(const ModelSourceConfig& source,
                                                int64_t vocab_size) {
  ASSIGN_OR_RETURN(GenerationConfig config, load_generation_config(source.model, vocab_size));
  if (source.generation_config != "auto") {
    GenerationConfig defaults;
    if (source.generation_config != "vllm") {
      const std::string path = source.generation_config + "/" + kGenerationFile;
      if (!file_exists(path)) {
        return invalid_argument(
            "--generation-config is '{}'; expected auto, vllm or a folder with {}",
            source.generation_config,
            kGenerationFile);
      }
      ASSIGN_OR_RETURN(defaults, load_generation_config(source.generation_config, vocab_size));
    }
    config.temperature = defaults.temperature;
    config.top_k = defaults.top_k;
    config.top_p = defaults.top_p;
    config.min_p = defaults.min_p;
    config.repetition_penalty = defaults.repetition_penalty;
    config.max_new_tokens = defaults.max_new_tokens;
    config.do_sample = defaults.do_sample;
  }
  if (!source.override_generation_config.empty()) {
    ASSIGN_OR_RETURN(const GenerationConfig over,
                     parse_override(source.override_generation_config, vocab_size));
    lay_over(over, &config);
  }
  return config;
}

}  // namespace atom
