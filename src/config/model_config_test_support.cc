#include "config/model_config_test_support.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace atom {

Json llama_json() {
  return Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 384,
    "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16", "eos_token_id": 2})");
}

ModelConfig parsed_config(const Json& json, const ModelConfigDefaults& defaults) {
  Result<ModelConfig> config = parse_model_config(json, defaults);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? *config : ModelConfig();
}

std::string config_error(const Json& json, const ModelConfigDefaults& defaults) {
  const Result<ModelConfig> config = parse_model_config(json, defaults);
  return config.ok() ? "no error" : config.status().message();
}

Json llama_with(const char* key, Json value) {
  Json json = llama_json();
  json[key] = std::move(value);
  return json;
}

}  // namespace atom
