#include "config/model_config.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "config/generation_config.h"
#include "config/parse_rope_config.h"

namespace atom {
namespace {

// Far above any model, low enough that no product of two overflows and no loop runs away.
constexpr int64_t kMaxVocabSize = int64_t{1} << 24;
constexpr int64_t kMaxWidth = int64_t{1} << 20;  // hidden and intermediate size
constexpr int64_t kMaxLayers = 10'000;
constexpr int64_t kMaxHeads = 16'384;
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxPositions = int64_t{1} << 30;
constexpr size_t kMaxEndTokens = 64;
constexpr const char* kConfigFile = "config.json";

// The configuration of the text model: that of a multimodal wrapper lies under text_config.
Result<Json> flatten(const Json& config) {
  if (!config.is_object()) return invalid_argument("{}: expected a JSON object", kConfigFile);
  const ConfigReader reader(config, kConfigFile);
  ASSIGN_OR_RETURN(const Json* text_config, reader.get_object("text_config"));
  Json flat = config;
  if (text_config == nullptr) return flat;
  flat.erase("text_config");
  for (const auto& [key, value] : text_config->items()) flat[key] = value;
  return flat;
}

// Needs the number of query heads.
Status read_kv_heads(const ConfigReader& reader,
                     const ModelConfigDefaults& defaults,
                     ModelConfig* config) {
  const Json& json = *config->raw;
  const int64_t default_kv_heads =
      defaults.num_key_value_heads > 0 && !json.contains("num_key_value_heads")
          ? defaults.num_key_value_heads
          : config->num_attention_heads;
  ASSIGN_OR_RETURN(const int64_t kv_heads,
                   reader.get_int("num_key_value_heads", 1, kMaxHeads, default_kv_heads));
  if (config->num_attention_heads % kv_heads != 0) {
    return invalid_argument(
        "{}: 'num_attention_heads' {} is no multiple of 'num_key_value_heads' {}",
        kConfigFile,
        config->num_attention_heads,
        kv_heads);
  }
  config->num_key_value_heads = static_cast<int32_t>(kv_heads);
  return {};
}

// Needs the width of the model and the number of query heads.
Status read_head_dim(const ConfigReader& reader,
                     const ModelConfigDefaults& defaults,
                     ModelConfig* config) {
  if (!reader.has(defaults.head_dim_key) && defaults.head_dim == 0 &&
      config->hidden_size % config->num_attention_heads != 0) {
    return invalid_argument(
        "{}: 'hidden_size' {} is no multiple of 'num_attention_heads' {}, and there is no '{}'",
        kConfigFile,
        config->hidden_size,
        config->num_attention_heads,
        defaults.head_dim_key);
  }
  const int64_t default_head_dim =
      defaults.head_dim > 0 ? defaults.head_dim : config->hidden_size / config->num_attention_heads;
  ASSIGN_OR_RETURN(const int64_t head_dim,
                   reader.get_int(defaults.head_dim_key, 2, kMaxHeadDim, default_head_dim));
  if (head_dim % 2 != 0 || head_dim < 2 || head_dim > kMaxHeadDim) {
    return invalid_argument("{}: '{}' is {}; expected an even integer in [2, {}]",
                            kConfigFile,
                            defaults.head_dim_key,
                            head_dim,
                            kMaxHeadDim);
  }
  config->head_dim = static_cast<int32_t>(head_dim);
  return {};
}

Status read_sizes(const ConfigReader& reader,
                  const ModelConfigDefaults& defaults,
                  ModelConfig* config) {
  const auto require = [&](const char* key, int64_t max, const char* meaning, int32_t* out) {
    Result<int64_t> size = reader.require_int(key, 1, max, meaning);
    if (size.ok()) *out = static_cast<int32_t>(*size);
    return size.status();
  };
  RETURN_IF_ERROR(
      require("vocab_size", kMaxVocabSize, "the number of token ids", &config->vocab_size));
  RETURN_IF_ERROR(
      require("hidden_size", kMaxWidth, "the width of the model", &config->hidden_size));
  if (defaults.requires_intermediate_size || reader.has("intermediate_size")) {
    RETURN_IF_ERROR(require("intermediate_size",
                            kMaxWidth,
                            "the width of the feed-forward layers",
                            &config->intermediate_size));
  }
  RETURN_IF_ERROR(
      require("num_hidden_layers", kMaxLayers, "the number of layers", &config->num_hidden_layers));
  RETURN_IF_ERROR(require(
      "num_attention_heads", kMaxHeads, "the number of query heads", &config->num_attention_heads));
  RETURN_IF_ERROR(read_kv_heads(reader, defaults, config));
  RETURN_IF_ERROR(read_head_dim(reader, defaults, config));
  ASSIGN_OR_RETURN(
      const int64_t positions,
      reader.get_int(
          "max_position_embeddings", 1, kMaxPositions, defaults.max_position_embeddings));
  config->max_position_embeddings = static_cast<int32_t>(positions);
  return {};
}

Status read_numerics(const ConfigReader& reader,
                     const ModelConfigDefaults& defaults,
                     ModelConfig* config) {
  ASSIGN_OR_RETURN(const double eps,
                   reader.get_double("rms_norm_eps", 0, 1, defaults.rms_norm_eps));
  config->rms_norm_eps = static_cast<float>(eps);
  ASSIGN_OR_RETURN(config->hidden_act, reader.get_string("hidden_act", "silu"));
  ASSIGN_OR_RETURN(config->tie_word_embeddings,
                   reader.get_bool("tie_word_embeddings", defaults.tie_word_embeddings));
  ASSIGN_OR_RETURN(const bool attention_bias, reader.get_bool("attention_bias", false));
  ASSIGN_OR_RETURN(const bool bias, reader.get_bool("bias", false));
  config->o_proj_bias = attention_bias || bias;
  ASSIGN_OR_RETURN(config->qkv_bias,
                   reader.get_bool("qkv_bias", config->o_proj_bias || defaults.qkv_bias));
  ASSIGN_OR_RETURN(config->mlp_bias, reader.get_bool("mlp_bias", false));

  const char* dtype_key = reader.has("dtype") ? "dtype" : "torch_dtype";
  ASSIGN_OR_RETURN(const std::string dtype, reader.get_string(dtype_key, "float32"));
  const Result<DType> parsed = parse_dtype(dtype);
  const bool computable =
      parsed.ok() &&
      (*parsed == DType::kFloat32 || *parsed == DType::kFloat16 || *parsed == DType::kBFloat16);
  if (!computable) {
    return reader.wrong(dtype_key, *reader.find(dtype_key), "float32, float16 or bfloat16");
  }
  config->dtype = *parsed;
  return {};
}

Status read_layer_types(const ConfigReader& reader, ModelConfig* config) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   reader.get_strings("layer_types", static_cast<size_t>(kMaxLayers)));
  if (names.size() != static_cast<size_t>(config->num_hidden_layers)) {
    return invalid_argument("{}: 'layer_types' has {} entries; expected {}, one per layer",
                            kConfigFile,
                            names.size(),
                            config->num_hidden_layers);
  }
  config->layer_types.clear();
  for (const std::string& name : names) {
    if (name == "full_attention") {
      config->layer_types.push_back(LayerType::kFullAttention);
    } else if (name == "sliding_attention") {
      config->layer_types.push_back(LayerType::kSlidingAttention);
    } else if (name == "linear_attention") {
      config->layer_types.push_back(LayerType::kLinearAttention);
    } else {
      return reader.wrong("layer_types",
                          name,
                          "full_attention, sliding_attention or linear_attention for each layer");
    }
  }
  return {};
}

Status read_attention_layout(const ConfigReader& reader,
                             const ModelConfigDefaults& defaults,
                             ModelConfig* config) {
  // null says "no window"; only an absent key takes the default.
  const int64_t absent =
      config->raw->contains("sliding_window") ? 0 : int64_t{defaults.sliding_window};
  ASSIGN_OR_RETURN(int64_t window, reader.get_int("sliding_window", 0, kMaxPositions, absent));
  ASSIGN_OR_RETURN(const int64_t max_window_layers,
                   reader.get_int("max_window_layers", 0, kMaxLayers, defaults.max_window_layers));
  const SlidingWindowRule rule = defaults.sliding_window_rule;
  const bool from_a_layer_on = rule == SlidingWindowRule::kUseSlidingWindow;
  if (from_a_layer_on || rule == SlidingWindowRule::kUseForAllLayers) {
    ASSIGN_OR_RETURN(const bool use, reader.get_bool("use_sliding_window", false));
    if (!use) window = 0;
  }

  std::vector<LayerType>& layers = config->layer_types;
  layers.assign(static_cast<size_t>(config->num_hidden_layers), LayerType::kFullAttention);
  if (reader.has("layer_types")) {
    RETURN_IF_ERROR(read_layer_types(reader, config));
  } else if (window > 0 && rule != SlidingWindowRule::kNone) {
    const size_t first = from_a_layer_on ? static_cast<size_t>(max_window_layers) : 0;
    const size_t step = rule == SlidingWindowRule::kEvenLayers ? 2 : 1;
    for (size_t i = first; i < layers.size(); i += step) layers[i] = LayerType::kSlidingAttention;
  }
  // A sliding layer without a window sees everything.
  if (window == 0) {
    std::replace(
        layers.begin(), layers.end(), LayerType::kSlidingAttention, LayerType::kFullAttention);
  }
  const bool slides =
      std::find(layers.begin(), layers.end(), LayerType::kSlidingAttention) != layers.end();
  config->sliding_window = slides ? static_cast<int32_t>(window) : 0;
  return {};
}

Status read_token_ids(const ConfigReader& reader,
                      const ModelConfigDefaults& defaults,
                      ModelConfig* config) {
  const int64_t last = config->vocab_size - 1;
  // null is a statement as well: no such token.
  if (!config->raw->contains("bos_token_id")) {
    config->bos_token_id = defaults.bos_token_id;
  } else if (reader.has("bos_token_id")) {
    ASSIGN_OR_RETURN(const int64_t bos, reader.get_int("bos_token_id", 0, last, 0));
    config->bos_token_id = static_cast<int32_t>(bos);
  }
  if (!config->raw->contains("eos_token_id") && defaults.eos_token_id) {
    config->eos_token_ids = {*defaults.eos_token_id};
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> eos,
                   reader.get_ints("eos_token_id", 0, last, kMaxEndTokens));
  for (int64_t id : eos) config->eos_token_ids.push_back(static_cast<int32_t>(id));
  // Padding is never computed with: files that put it outside the vocabulary (-1, or the next id)
  // are right in their own way.
  ASSIGN_OR_RETURN(const int64_t pad, reader.get_int("pad_token_id", -1, INT32_MAX, -1));
  if (pad >= 0 && pad <= last) config->pad_token_id = static_cast<int32_t>(pad);
  return {};
}

}  // namespace

Result<Json> read_config_json(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return not_found(
        "{}: {}; give the folder of a checkpoint (config.json, *.safetensors, tokenizer){}",
        folder,
        file_exists(folder) ? "no folder" : "no such folder",
        folder.ends_with(".gguf") ? ". GGUF files are not read" : "");
  }
  JsonLimits limits;
  limits.max_bytes = size_t{16} << 20;
  return read_json_file(folder + "/config.json", limits);
}

Result<std::string> architecture_of(const Json& config) {
  if (!config.is_object()) return invalid_argument("{}: expected a JSON object", kConfigFile);
  const ConfigReader reader(config, kConfigFile);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, reader.get_strings("architectures", 64));
  if (names.empty()) {
    return invalid_argument(
        "{}: missing 'architectures' (an array of strings; the first names the model's class)",
        kConfigFile);
  }
  return names[0];
}

Result<ModelConfig> parse_model_config(const Json& json, const ModelConfigDefaults& defaults) {
  ModelConfig config;
  ASSIGN_OR_RETURN(config.architecture, architecture_of(json));
  ASSIGN_OR_RETURN(Json flat, flatten(json));
  config.raw = std::make_shared<const Json>(std::move(flat));
  const ConfigReader reader = config.extension();
  ASSIGN_OR_RETURN(config.model_type, reader.get_string("model_type", ""));
  if (const Json* quantization = reader.find("quantization_config")) {
    ASSIGN_OR_RETURN(config.quantization, parse_quant_config(*quantization));
  }
  RETURN_IF_ERROR(read_sizes(reader, defaults, &config));
  RETURN_IF_ERROR(read_numerics(reader, defaults, &config));
  RETURN_IF_ERROR(read_attention_layout(reader, defaults, &config));
  RETURN_IF_ERROR(read_token_ids(reader, defaults, &config));
  ASSIGN_OR_RETURN(
      config.rope,
      parse_rope_config(reader, defaults, config.head_dim, config.max_position_embeddings));
  return config;
}

Result<ModelConfig> load_model_config(const std::string& folder,
                                      const ModelConfigDefaults& defaults) {
  ASSIGN_OR_RETURN(const Json json, read_config_json(folder));
  ASSIGN_OR_RETURN(ModelConfig config, parse_model_config(json, defaults));
  ASSIGN_OR_RETURN(const GenerationConfig generation,
                   load_generation_config(folder, config.vocab_size));
  if (!generation.eos_token_ids.empty()) config.eos_token_ids = generation.eos_token_ids;
  if (generation.bos_token_id) config.bos_token_id = generation.bos_token_id;
  if (generation.pad_token_id) config.pad_token_id = generation.pad_token_id;
  return config;
}

}  // namespace atom
