#include "config/generation_config.h"

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

}  // namespace atom
