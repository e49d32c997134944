#include "config/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "config/model_config_test_support.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ModelConfigDefaults qwen3_defaults() {
  ModelConfigDefaults defaults;
  defaults.head_dim = 128;
  defaults.max_position_embeddings = 32768;
  defaults.sliding_window_rule = SlidingWindowRule::kUseSlidingWindow;
  defaults.sliding_window = 4096;
  return defaults;
}

TEST(ModelConfig, ReadsTheFields) {
  const ModelConfig config = parsed_config(llama_json());
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_EQ(config.vocab_size, 384);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.intermediate_size, 192);
  EXPECT_EQ(config.num_hidden_layers, 3);
  EXPECT_EQ(config.num_attention_heads, 4);
  EXPECT_EQ(config.num_key_value_heads, 2);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.max_position_embeddings, 1024);
  EXPECT_FLOAT_EQ(config.rms_norm_eps, 1e-5f);
  EXPECT_EQ(config.hidden_act, "silu");
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_FALSE(config.qkv_bias);
  EXPECT_EQ(config.dtype, DType::kBFloat16);
  EXPECT_EQ(config.layer_types, std::vector<LayerType>(3, LayerType::kFullAttention));
  EXPECT_EQ(config.eos_token_ids, std::vector<int32_t>{2});
  EXPECT_FALSE(config.bos_token_id.has_value());
  EXPECT_EQ(config.q_size(), 64);
  EXPECT_EQ(config.kv_size(), 32);
  EXPECT_FALSE(config.quantization.is_quantized());
}

TEST(ModelConfig, WhatIsNoFolderIsNamed) {
  EXPECT_EQ(read_config_json("/nowhere/model.gguf").status().message(),
            "/nowhere/model.gguf: no such folder; give the folder of a checkpoint (config.json, "
            "*.safetensors, tokenizer). GGUF files are not read");
  EXPECT_THAT(read_config_json("/dev/null").status().message(),
              HasSubstr("/dev/null: no folder; give"));
}

TEST(ModelConfig, DefaultsOfTheArchitectureFillMissingAndNullKeys) {
  Json json = llama_json();
  json.erase("num_key_value_heads");
  json["head_dim"] = nullptr;
  json.erase("max_position_embeddings");
  json.erase("eos_token_id");
  json.erase("torch_dtype");
  ModelConfigDefaults defaults = qwen3_defaults();
  defaults.eos_token_id = 7;
  defaults.rope_theta = 150000;
  const ModelConfig config = parsed_config(json, defaults);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.num_key_value_heads, 4);
  EXPECT_EQ(config.max_position_embeddings, 32768);
  EXPECT_EQ(config.eos_token_ids, std::vector<int32_t>{7});
  EXPECT_EQ(config.rope.theta, 150000);
  EXPECT_EQ(config.dtype, DType::kFloat32);
  json["eos_token_id"] = nullptr;
  EXPECT_TRUE(parsed_config(json, defaults).eos_token_ids.empty());

  // A given head_dim need not divide the width.
  json = llama_with("head_dim", 30);
  json["hidden_size"] = 65;
  EXPECT_EQ(parsed_config(json).head_dim, 30);

  // What is rotated may have a key of its own.
  json["qk_rope_head_dim"] = 12;
  defaults.head_dim_key = "qk_rope_head_dim";
  EXPECT_EQ(parsed_config(json, defaults).head_dim, 12);
  EXPECT_EQ(parsed_config(json, defaults).rope.rotary_dim, 12);
}

TEST(ModelConfig, NamesMissingFields) {
  const std::pair<const char*, const char*> fields[] = {
      {"vocab_size", "the number of token ids"},
      {"hidden_size", "the width of the model"},
      {"intermediate_size", "the width of the feed-forward layers"},
      {"num_hidden_layers", "the number of layers"},
      {"num_attention_heads", "the number of query heads"}};
  for (const auto& [key, meaning] : fields) {
    const std::string expected =
        fmt::format("config.json: missing '{}' (an integer, {})", key, meaning);
    Json json = llama_json();
    json.erase(key);
    EXPECT_EQ(config_error(json), expected);
    EXPECT_EQ(config_error(llama_with(key, nullptr)), expected);
  }
  Json json = llama_json();
  json.erase("architectures");
  EXPECT_THAT(config_error(json), HasSubstr("missing 'architectures'"));
}

TEST(ModelConfig, RefusesSizesOutOfRange) {
  for (const char* key : {"vocab_size",
                          "hidden_size",
                          "intermediate_size",
                          "num_hidden_layers",
                          "num_attention_heads",
                          "num_key_value_heads",
                          "head_dim",
                          "max_position_embeddings"}) {
    for (const Json& value : {Json(0),
                              Json(-1),
                              Json(int64_t{1'000'000'000'000}),
                              Json(UINT64_MAX),
                              Json(INT64_MIN),
                              Json(1e300),
                              Json(2.5)}) {
      EXPECT_THAT(config_error(llama_with(key, value)),
                  AllOf(HasSubstr(fmt::format("config.json: '{}' is ", key)),
                        HasSubstr("expected an integer in [")))
          << value;
    }
  }
  EXPECT_EQ(config_error(llama_with("num_hidden_layers", int64_t{1'000'000'000'000})),
            "config.json: 'num_hidden_layers' is 1000000000000; expected an integer in [1, 10000]");
}

TEST(ModelConfig, RefusesWrongTypes) {
  EXPECT_EQ(config_error(llama_with("hidden_size", "64")),
            "config.json: 'hidden_size' is the string \"64\"; expected an integer in [1, 1048576]");
  EXPECT_THAT(config_error(llama_with("hidden_size", Json::array())),
              HasSubstr("'hidden_size' is an array"));
  EXPECT_THAT(config_error(llama_with("hidden_size", true)), HasSubstr("'hidden_size' is true"));
  EXPECT_THAT(config_error(llama_with("tie_word_embeddings", 1)),
              HasSubstr("expected true or false"));
  EXPECT_THAT(config_error(llama_with("hidden_act", 1)), HasSubstr("expected a string"));
  EXPECT_THAT(config_error(llama_with("architectures", "Llama")), HasSubstr("array of at most"));
  EXPECT_THAT(config_error(llama_with("architectures", Json::array({1}))),
              HasSubstr("array of strings"));
  EXPECT_THAT(config_error(llama_with("text_config", 1)), HasSubstr("expected an object"));
  EXPECT_THAT(config_error(Json(3)), HasSubstr("expected a JSON object"));
  EXPECT_THAT(config_error(llama_with("rope_scaling", "yarn")), HasSubstr("'rope_scaling'"));
}

TEST(ModelConfig, RefusesInconsistentHeads) {
  EXPECT_THAT(config_error(llama_with("num_key_value_heads", 3)),
              HasSubstr("'num_attention_heads' 4 is no multiple of 'num_key_value_heads' 3"));
  EXPECT_THAT(config_error(llama_with("hidden_size", 66)),
              HasSubstr("'hidden_size' 66 is no multiple of"));
  EXPECT_THAT(config_error(llama_with("head_dim", 15)),
              HasSubstr("'head_dim' is 15; expected an even"));
  // hidden_size / num_attention_heads is checked as head_dim is.
  EXPECT_THAT(config_error(llama_with("hidden_size", 1 << 20)), HasSubstr("'head_dim' is 262144"));
}

TEST(ModelConfig, RefusesBadNumerics) {
  EXPECT_THAT(config_error(llama_with("rms_norm_eps", -1e-6)),
              HasSubstr("'rms_norm_eps' is -1e-06"));
  EXPECT_THAT(config_error(llama_with("rms_norm_eps", NAN)), HasSubstr("'rms_norm_eps'"));
  EXPECT_THAT(config_error(llama_with("rms_norm_eps", "tiny")),
              HasSubstr("expected a number in [0, 1]"));
  EXPECT_THAT(config_error(llama_with("torch_dtype", "int8")),
              HasSubstr("float32, float16 or bfloat16"));
  EXPECT_THAT(config_error(llama_with("dtype", "complex")), HasSubstr("'dtype' is the string"));
  EXPECT_EQ(parsed_config(llama_with("dtype", "torch.float16")).dtype, DType::kFloat16);
}

TEST(ModelConfig, Biases) {
  ModelConfig config = parsed_config(llama_with("attention_bias", true));
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_TRUE(config.o_proj_bias);
  EXPECT_FALSE(config.mlp_bias);
  config = parsed_config(llama_with("bias", true));
  EXPECT_TRUE(config.qkv_bias && config.o_proj_bias);
  Json json = llama_with("bias", true);
  json["qkv_bias"] = false;
  EXPECT_FALSE(parsed_config(json).qkv_bias);
  EXPECT_TRUE(parsed_config(json).o_proj_bias);
  ModelConfigDefaults qwen2;
  qwen2.qkv_bias = true;
  EXPECT_TRUE(parsed_config(llama_json(), qwen2).qkv_bias);
  EXPECT_FALSE(parsed_config(llama_json(), qwen2).o_proj_bias);
  EXPECT_TRUE(parsed_config(llama_with("mlp_bias", true)).mlp_bias);
}

TEST(ModelConfig, SlidingWindowByArchitecture) {
  constexpr LayerType kFull = LayerType::kFullAttention;
  constexpr LayerType kSliding = LayerType::kSlidingAttention;
  // Llama has none without layer_types.
  EXPECT_EQ(parsed_config(llama_with("sliding_window", 32)).sliding_window, 0);
  Json json = llama_with("sliding_window", 32);
  json["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
  ModelConfig config = parsed_config(json);
  EXPECT_EQ(config.layer_types, (std::vector<LayerType>{kSliding, kFull, kSliding}));
  EXPECT_EQ(config.layer_sliding_window(0), 32);
  EXPECT_EQ(config.layer_sliding_window(1), 0);

  // Mistral: an absent key is 4096, null is none.
  ModelConfigDefaults mistral;
  mistral.sliding_window_rule = SlidingWindowRule::kAllLayers;
  mistral.sliding_window = 4096;
  EXPECT_EQ(parsed_config(llama_json(), mistral).layer_sliding_window(2), 4096);
  EXPECT_EQ(parsed_config(llama_with("sliding_window", nullptr), mistral).layer_sliding_window(2),
            0);

  // Qwen3: only with use_sliding_window, from max_window_layers on.
  json = llama_with("sliding_window", 32);
  json["max_window_layers"] = 1;
  EXPECT_EQ(parsed_config(json, qwen3_defaults()).sliding_window, 0);
  json["use_sliding_window"] = true;
  config = parsed_config(json, qwen3_defaults());
  EXPECT_EQ(config.layer_types, (std::vector<LayerType>{kFull, kSliding, kSliding}));
  json["use_sliding_window"] = false;
  json["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
  EXPECT_EQ(parsed_config(json, qwen3_defaults()).layer_sliding_window(0), 0);
}

TEST(ModelConfig, RefusesBadLayerTypes) {
  EXPECT_THAT(config_error(llama_with("layer_types", {"full_attention"})),
              HasSubstr("'layer_types' has 1 entries; expected 3"));
  EXPECT_THAT(config_error(llama_with("layer_types", {"full_attention", "x", "full_attention"})),
              HasSubstr("'layer_types' is the string \"x\""));
}

TEST(ModelConfig, TokenIds) {
  EXPECT_EQ(parsed_config(llama_with("eos_token_id", {1, 2})).eos_token_ids,
            (std::vector<int32_t>{1, 2}));
  EXPECT_THAT(config_error(llama_with("eos_token_id", 384)), HasSubstr("'eos_token_id' is 384"));
  EXPECT_THAT(config_error(llama_with("eos_token_id", {1, -1})), HasSubstr("'eos_token_id' is -1"));
  EXPECT_THAT(config_error(llama_with("bos_token_id", -1)), HasSubstr("'bos_token_id' is -1"));
  EXPECT_FALSE(parsed_config(llama_with("pad_token_id", -1)).pad_token_id.has_value());
  EXPECT_EQ(parsed_config(llama_with("pad_token_id", 3)).pad_token_id, 3);
}

TEST(ModelConfig, QuantizationIsReadOrRefusedByName) {
  EXPECT_EQ(parsed_config(llama_with("quantization_config", {{"quant_method", "fp8"}}))
                .quantization.method,
            "fp8");
  const Result<ModelConfig> config = parse_model_config(
      llama_with("quantization_config", {{"quant_method", "awq"}}), ModelConfigDefaults());
  EXPECT_EQ(config.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(config.status().message(), HasSubstr("quantization method 'awq' is not supported"));
  EXPECT_THAT(config_error(llama_with("quantization_config", {{"quant_method", "magic"}})),
              HasSubstr("'quant_method' is the string \"magic\"; expected one of fp8"));
  EXPECT_THAT(config_error(llama_with("quantization_config", Json::object())),
              HasSubstr("missing 'quant_method'"));
}

TEST(ModelConfig, TextConfigLiesOverTheRest) {
  Json inner = llama_json();
  inner.erase("architectures");
  Json json;
  json["architectures"] = {"Qwen3_5ForConditionalGeneration"};
  json["model_type"] = "wrapper";
  json["vision_config"] = {{"hidden_size", 7}};
  json["tie_word_embeddings"] = true;
  json["text_config"] = inner;
  const ModelConfig config = parsed_config(json);
  EXPECT_EQ(config.architecture, "Qwen3_5ForConditionalGeneration");
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_TRUE(config.tie_word_embeddings);
}

TEST(ModelConfig, ExtensionReadsOtherKeys) {
  const ModelConfig config = parsed_config(llama_with("num_experts", 8));
  EXPECT_EQ(*config.extension().get_int("num_experts", 1, 1024, 0), 8);
  EXPECT_EQ(*config.extension().get_int("top_k", 1, 1024, 4), 4);
  EXPECT_FALSE(config.extension().get_int("num_experts", 16, 1024, 0).ok());
  const ModelConfig copy = config;
  EXPECT_TRUE(copy.extension().has("num_experts"));
}

// Every configuration of the fixtures is read, the quantized ones included.
TEST(ModelConfig, ReadsTheFixtures) {
  const std::string folder = shared_folder().value_or("") + "/fixtures";
  if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << "no fixtures in " << folder;
  ModelConfigDefaults defaults;
  defaults.requires_intermediate_size = false;
  int num_read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!file_exists(entry.path() / "config.json")) continue;
    const Result<Json> json = read_config_json(entry.path());
    ASSERT_TRUE(json.ok()) << json.status().message();
    const Result<ModelConfig> config = load_model_config(entry.path(), defaults);
    EXPECT_TRUE(config.ok()) << entry.path() << ": " << config.status().message();
    if (config.ok()) {
      EXPECT_EQ(config->quantization.is_quantized(), json->contains("quantization_config"));
    }
    ++num_read;
  }
  EXPECT_GT(num_read, 5);
}

}  // namespace
}  // namespace atom
