// What config.json says about a model, checked and in one form for every spelling. A value type;
// read once at start-up, const afterwards. Keys that only one architecture knows are read by that
// model's file through extension().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "config/config_reader.h"
#include "config/quant_config.h"
#include "config/rope_config.h"
#include "tensor/dtype.h"

namespace atom {

enum class LayerType : uint8_t { kFullAttention, kSlidingAttention, kLinearAttention };

// How an architecture reads "sliding_window" when the file has no "layer_types".
enum class SlidingWindowRule {
  kNone,              // no layer slides (Llama)
  kAllLayers,         // every layer slides (Mistral)
  kUseSlidingWindow,  // with use_sliding_window, layers from max_window_layers on (Qwen2, Qwen3)
  kUseForAllLayers,   // with use_sliding_window, every layer (Qwen3-MoE)
  kEvenLayers,        // layers 0, 2, ... (gpt-oss)
};

// What a missing key means, which differs by architecture. A row of the model registry has one.
struct ModelConfigDefaults {
  // False for models of experts only, whose files need not have it; then it is 0.
  bool requires_intermediate_size = true;
  int32_t head_dim = 0;  // 0: hidden_size / num_attention_heads
  // The key of the part of a head that is rotated, where that is not all of "head_dim".
  const char* head_dim_key = "head_dim";
  int32_t num_key_value_heads = 0;  // 0: num_attention_heads
  int32_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  double partial_rotary_factor = 1.0;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;
  SlidingWindowRule sliding_window_rule = SlidingWindowRule::kNone;
  int32_t sliding_window = 0;      // 0: no window
  int32_t max_window_layers = 28;  // kUseSlidingWindow only
  std::optional<int32_t> bos_token_id = std::nullopt;
  std::optional<int32_t> eos_token_id = std::nullopt;
};

struct ModelConfig {
  std::string architecture;  // architectures[0], the key of the model registry
  std::string model_type;

  int32_t vocab_size = 0;
  int32_t hidden_size = 0;
  int32_t intermediate_size = 0;
  int32_t num_hidden_layers = 0;
  int32_t num_attention_heads = 0;
  int32_t num_key_value_heads = 0;  // divides num_attention_heads
  int32_t head_dim = 0;             // even; num_attention_heads * head_dim need not be hidden_size
  int32_t max_position_embeddings = 0;
  float rms_norm_eps = 0;
  std::string hidden_act = "silu";
  bool tie_word_embeddings = false;
  bool qkv_bias = false;
  bool o_proj_bias = false;
  bool mlp_bias = false;
  DType dtype = DType::kFloat32;  // of the checkpoint

  std::vector<LayerType> layer_types;  // one per layer
  int32_t sliding_window = 0;          // tokens, of the sliding layers; 0 when there are none
  RopeConfig rope;

  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;  // any of them ends an answer; may be empty
  std::optional<int32_t> pad_token_id;

  QuantConfig quantization;

  // The object all this was read from: config.json with text_config, if any, laid over it.
  std::shared_ptr<const Json> raw;
  ConfigReader extension() const { return ConfigReader(*raw, "config.json"); }

  // The window of a layer in tokens, the token itself included; 0 = unlimited.
  int32_t layer_sliding_window(int layer) const {
    return layer_types[layer] == LayerType::kSlidingAttention ? sliding_window : 0;
  }
  int64_t q_size() const { return int64_t{num_attention_heads} * head_dim; }
  int64_t kv_size() const { return int64_t{num_key_value_heads} * head_dim; }
};

// The two stages of reading a model folder: the architecture chooses the defaults.
Result<Json> read_config_json(const std::string& folder);
Result<std::string> architecture_of(const Json& config);

// Messages begin with "config.json".
Result<ModelConfig> parse_model_config(const Json& config, const ModelConfigDefaults& defaults);
// read_config_json and parse_model_config, then generation_config.json, whose end-of-text ids
// replace those of config.json.
Result<ModelConfig> load_model_config(const std::string& folder,
                                      const ModelConfigDefaults& defaults);

}  // namespace atom
