#include "config/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Json llama() {
  return Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 384,
    "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16", "eos_token_id": 2})");
}

ModelConfigDefaults qwen3_defaults() {
  ModelConfigDefaults defaults;
  defaults.head_dim = 128;
  defaults.max_position_embeddings = 32768;
  defaults.sliding_window_rule = SlidingWindowRule::kUseSlidingWindow;
  defaults.sliding_window = 4096;
  return defaults;
}

ModelConfig parse(const Json& json, const ModelConfigDefaults& defaults = {}) {
  Result<ModelConfig> config = parse_model_config(json, defaults);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? *config : ModelConfig();
}

std::string error_of(const Json& json, const ModelConfigDefaults& defaults = {}) {
  const Result<ModelConfig> config = parse_model_config(json, defaults);
  return config.ok() ? "no error" : config.status().message();
}

// llama() with one key replaced.
Json with(const char* key, Json value) {
  Json json = llama();
  json[key] = std::move(value);
  return json;
}

TEST(ModelConfig, ReadsTheFields) {
  const ModelConfig config = parse(llama());
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

TEST(ModelConfig, DefaultsOfTheArchitectureFillMissingAndNullKeys) {
  Json json = llama();
  json.erase("num_key_value_heads");
  json["head_dim"] = nullptr;
  json.erase("max_position_embeddings");
  json.erase("eos_token_id");
  json.erase("torch_dtype");
  ModelConfigDefaults defaults = qwen3_defaults();
  defaults.eos_token_id = 7;
  defaults.rope_theta = 150000;
  const ModelConfig config = parse(json, defaults);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.num_key_value_heads, 4);
  EXPECT_EQ(config.max_position_embeddings, 32768);
  EXPECT_EQ(config.eos_token_ids, std::vector<int32_t>{7});
  EXPECT_EQ(config.rope.theta, 150000);
  EXPECT_EQ(config.dtype, DType::kFloat32);
  json["eos_token_id"] = nullptr;
  EXPECT_TRUE(parse(json, defaults).eos_token_ids.empty());

  // A given head_dim need not divide the width.
  json = with("head_dim", 30);
  json["hidden_size"] = 65;
  EXPECT_EQ(parse(json).head_dim, 30);

  // What is rotated may have a key of its own.
  json["qk_rope_head_dim"] = 12;
  defaults.head_dim_key = "qk_rope_head_dim";
  EXPECT_EQ(parse(json, defaults).head_dim, 12);
  EXPECT_EQ(parse(json, defaults).rope.rotary_dim, 12);
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
    Json json = llama();
    json.erase(key);
    EXPECT_EQ(error_of(json), expected);
    EXPECT_EQ(error_of(with(key, nullptr)), expected);
  }
  Json json = llama();
  json.erase("architectures");
  EXPECT_THAT(error_of(json), HasSubstr("missing 'architectures'"));
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
      EXPECT_THAT(error_of(with(key, value)),
                  AllOf(HasSubstr(fmt::format("config.json: '{}' is ", key)),
                        HasSubstr("expected an integer in [")))
          << value;
    }
  }
  EXPECT_EQ(error_of(with("num_hidden_layers", int64_t{1'000'000'000'000})),
            "config.json: 'num_hidden_layers' is 1000000000000; expected an integer in [1, 10000]");
}

TEST(ModelConfig, RefusesWrongTypes) {
  EXPECT_EQ(error_of(with("hidden_size", "64")),
            "config.json: 'hidden_size' is the string \"64\"; expected an integer in [1, 1048576]");
  EXPECT_THAT(error_of(with("hidden_size", Json::array())), HasSubstr("'hidden_size' is an array"));
  EXPECT_THAT(error_of(with("hidden_size", true)), HasSubstr("'hidden_size' is true"));
  EXPECT_THAT(error_of(with("tie_word_embeddings", 1)), HasSubstr("expected true or false"));
  EXPECT_THAT(error_of(with("hidden_act", 1)), HasSubstr("expected a string"));
  EXPECT_THAT(error_of(with("architectures", "Llama")), HasSubstr("array of at most"));
  EXPECT_THAT(error_of(with("architectures", Json::array({1}))), HasSubstr("array of strings"));
  EXPECT_THAT(error_of(with("text_config", 1)), HasSubstr("expected an object"));
  EXPECT_THAT(error_of(Json(3)), HasSubstr("expected a JSON object"));
  EXPECT_THAT(error_of(with("rope_scaling", "yarn")), HasSubstr("'rope_scaling'"));
}

TEST(ModelConfig, RefusesInconsistentHeads) {
  EXPECT_THAT(error_of(with("num_key_value_heads", 3)),
              HasSubstr("'num_attention_heads' 4 is no multiple of 'num_key_value_heads' 3"));
  EXPECT_THAT(error_of(with("hidden_size", 66)), HasSubstr("'hidden_size' 66 is no multiple of"));
  EXPECT_THAT(error_of(with("head_dim", 15)), HasSubstr("'head_dim' is 15; expected an even"));
  // hidden_size / num_attention_heads is checked as head_dim is.
  EXPECT_THAT(error_of(with("hidden_size", 1 << 20)), HasSubstr("'head_dim' is 262144"));
}

TEST(ModelConfig, RefusesBadNumerics) {
  EXPECT_THAT(error_of(with("rms_norm_eps", -1e-6)), HasSubstr("'rms_norm_eps' is -1e-06"));
  EXPECT_THAT(error_of(with("rms_norm_eps", NAN)), HasSubstr("'rms_norm_eps'"));
  EXPECT_THAT(error_of(with("rms_norm_eps", "tiny")), HasSubstr("expected a number in [0, 1]"));
  EXPECT_THAT(error_of(with("torch_dtype", "int8")), HasSubstr("float32, float16 or bfloat16"));
  EXPECT_THAT(error_of(with("dtype", "complex")), HasSubstr("'dtype' is the string"));
  EXPECT_EQ(parse(with("dtype", "torch.float16")).dtype, DType::kFloat16);
}

TEST(ModelConfig, Biases) {
  ModelConfig config = parse(with("attention_bias", true));
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_TRUE(config.o_proj_bias);
  EXPECT_FALSE(config.mlp_bias);
  config = parse(with("bias", true));
  EXPECT_TRUE(config.qkv_bias && config.o_proj_bias);
  Json json = with("bias", true);
  json["qkv_bias"] = false;
  EXPECT_FALSE(parse(json).qkv_bias);
  EXPECT_TRUE(parse(json).o_proj_bias);
  ModelConfigDefaults qwen2;
  qwen2.qkv_bias = true;
  EXPECT_TRUE(parse(llama(), qwen2).qkv_bias);
  EXPECT_FALSE(parse(llama(), qwen2).o_proj_bias);
  EXPECT_TRUE(parse(with("mlp_bias", true)).mlp_bias);
}

TEST(ModelConfig, SlidingWindowByArchitecture) {
  constexpr LayerType kFull = LayerType::kFullAttention;
  constexpr LayerType kSliding = LayerType::kSlidingAttention;
  // Llama has none without layer_types.
  EXPECT_EQ(parse(with("sliding_window", 32)).sliding_window, 0);
  Json json = with("sliding_window", 32);
  json["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
  ModelConfig config = parse(json);
  EXPECT_EQ(config.layer_types, (std::vector<LayerType>{kSliding, kFull, kSliding}));
  EXPECT_EQ(config.layer_sliding_window(0), 32);
  EXPECT_EQ(config.layer_sliding_window(1), 0);

  // Mistral: an absent key is 4096, null is none.
  ModelConfigDefaults mistral;
  mistral.sliding_window_rule = SlidingWindowRule::kAllLayers;
  mistral.sliding_window = 4096;
  EXPECT_EQ(parse(llama(), mistral).layer_sliding_window(2), 4096);
  EXPECT_EQ(parse(with("sliding_window", nullptr), mistral).layer_sliding_window(2), 0);

  // Qwen3: only with use_sliding_window, from max_window_layers on.
  json = with("sliding_window", 32);
  json["max_window_layers"] = 1;
  EXPECT_EQ(parse(json, qwen3_defaults()).sliding_window, 0);
  json["use_sliding_window"] = true;
  config = parse(json, qwen3_defaults());
  EXPECT_EQ(config.layer_types, (std::vector<LayerType>{kFull, kSliding, kSliding}));
  json["use_sliding_window"] = false;
  json["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
  EXPECT_EQ(parse(json, qwen3_defaults()).layer_sliding_window(0), 0);
}

TEST(ModelConfig, RefusesBadLayerTypes) {
  EXPECT_THAT(error_of(with("layer_types", {"full_attention"})),
              HasSubstr("'layer_types' has 1 entries; expected 3"));
  EXPECT_THAT(error_of(with("layer_types", {"full_attention", "x", "full_attention"})),
              HasSubstr("'layer_types' is the string \"x\""));
}

TEST(ModelConfig, TokenIds) {
  EXPECT_EQ(parse(with("eos_token_id", {1, 2})).eos_token_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_THAT(error_of(with("eos_token_id", 384)), HasSubstr("'eos_token_id' is 384"));
  EXPECT_THAT(error_of(with("eos_token_id", {1, -1})), HasSubstr("'eos_token_id' is -1"));
  EXPECT_THAT(error_of(with("bos_token_id", -1)), HasSubstr("'bos_token_id' is -1"));
  EXPECT_FALSE(parse(with("pad_token_id", -1)).pad_token_id.has_value());
  EXPECT_EQ(parse(with("pad_token_id", 3)).pad_token_id, 3);
}

TEST(ModelConfig, QuantizationIsReadOrRefusedByName) {
  EXPECT_EQ(parse(with("quantization_config", {{"quant_method", "fp8"}})).quantization.method,
            "fp8");
  const Result<ModelConfig> config = parse_model_config(
      with("quantization_config", {{"quant_method", "awq"}}), ModelConfigDefaults());
  EXPECT_EQ(config.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(config.status().message(), HasSubstr("quantization method 'awq' is not supported"));
  EXPECT_THAT(error_of(with("quantization_config", {{"quant_method", "magic"}})),
              HasSubstr("'quant_method' is the string \"magic\"; expected one of fp8"));
  EXPECT_THAT(error_of(with("quantization_config", Json::object())),
              HasSubstr("missing 'quant_method'"));
}

TEST(ModelConfig, TextConfigLiesOverTheRest) {
  Json inner = llama();
  inner.erase("architectures");
  Json json;
  json["architectures"] = {"Qwen3_5ForConditionalGeneration"};
  json["model_type"] = "wrapper";
  json["vision_config"] = {{"hidden_size", 7}};
  json["tie_word_embeddings"] = true;
  json["text_config"] = inner;
  const ModelConfig config = parse(json);
  EXPECT_EQ(config.architecture, "Qwen3_5ForConditionalGeneration");
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_TRUE(config.tie_word_embeddings);
}

TEST(ModelConfig, ExtensionReadsOtherKeys) {
  const ModelConfig config = parse(with("num_experts", 8));
  EXPECT_EQ(*config.extension().get_int("num_experts", 1, 1024, 0), 8);
  EXPECT_EQ(*config.extension().get_int("top_k", 1, 1024, 4), 4);
  EXPECT_FALSE(config.extension().get_int("num_experts", 16, 1024, 0).ok());
  const ModelConfig copy = config;
  EXPECT_TRUE(copy.extension().has("num_experts"));
}

// Rope.

Json rope(const char* text) {
  return with("rope_scaling", Json::parse(text));
}

TEST(RopeConfig, BothSpellingsMeanTheSame) {
  Json older = rope(R"({"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,
                        "original_max_position_embeddings":64})");
  older["rope_theta"] = 500000;
  Json newer = with("rope_parameters", older["rope_scaling"]);
  newer["rope_parameters"]["rope_theta"] = 500000;
  newer["rope_theta"] = 1234;  // the inner value wins
  const RopeConfig expected = parse(older).rope;
  EXPECT_EQ(expected.type, RopeType::kLlama3);
  EXPECT_EQ(expected.theta, 500000);
  EXPECT_EQ(expected.factor, 8);
  EXPECT_EQ(expected.low_freq_factor, 1);
  EXPECT_EQ(expected.high_freq_factor, 4);
  EXPECT_EQ(expected.original_max_position_embeddings, 64);
  EXPECT_EQ(expected.rotary_dim, 16);
  EXPECT_EQ(parse(newer).rope, expected);
}

TEST(RopeConfig, ANonEmptyRopeScalingReplacesRopeParameters) {
  Json json = rope(R"({"type":"linear","factor":2})");
  json["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 4}};
  EXPECT_EQ(parse(json).rope.type, RopeType::kLinear);
  json["rope_scaling"] = Json::object();
  EXPECT_EQ(parse(json).rope.type, RopeType::kYarn);
  json["rope_scaling"] = nullptr;
  EXPECT_EQ(parse(json).rope.type, RopeType::kYarn);
}

TEST(RopeConfig, YarnDefaults) {
  const RopeConfig yarn =
      parse(rope(R"({"type":"yarn","original_max_position_embeddings":256,"beta_fast":0})")).rope;
  EXPECT_EQ(yarn.factor, 4);  // 1024 / 256
  EXPECT_EQ(yarn.beta_fast, 32);
  EXPECT_EQ(yarn.beta_slow, 1);
  EXPECT_TRUE(yarn.truncate);
  EXPECT_FALSE(yarn.attention_factor.has_value());
  Json json = rope(R"({"type":"yarn","factor":8,"truncate":false,"mscale":1.0,
      "mscale_all_dim":0.707,"attention_factor":1.5,"llama_4_scaling_beta":0.1})");
  json["original_max_position_embeddings"] = 128;
  const RopeConfig full = parse(json).rope;
  EXPECT_EQ(full.original_max_position_embeddings, 128);
  EXPECT_EQ(full.mscale_all_dim, 0.707);
  EXPECT_EQ(full.attention_factor, 1.5);
  EXPECT_EQ(full.llama_4_scaling_beta, 0.1);
  EXPECT_FALSE(full.truncate);
}

TEST(RopeConfig, LongRopeNeedsAFactorPerPair) {
  Json json = rope(R"({"type":"su","short_factor":[1,1,1,1,1,1,1,1],"factor":2})");
  EXPECT_THAT(error_of(json), HasSubstr("'long_factor' has 0 numbers; expected 8"));
  json["rope_scaling"]["long_factor"] = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(parse(json).rope.type, RopeType::kLongRope);
  EXPECT_EQ(parse(json).rope.long_factor[7], 8);
  json["rope_scaling"]["long_factor"][3] = 0;
  EXPECT_THAT(error_of(json), HasSubstr("'long_factor' contains 0"));
}

TEST(RopeConfig, PartialRotation) {
  Json json = with("partial_rotary_factor", 0.25);
  EXPECT_EQ(parse(json).rope.rotary_dim, 4);
  json["rope_parameters"] = {{"partial_rotary_factor", 0.5}};
  EXPECT_EQ(parse(json).rope.rotary_dim, 8);
  EXPECT_THAT(error_of(with("partial_rotary_factor", 0.2)), HasSubstr("rotates 3 dimensions"));
  EXPECT_THAT(error_of(with("partial_rotary_factor", 0)), HasSubstr("'partial_rotary_factor'"));
}

TEST(RopeConfig, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(
      error_of(rope(R"({"type":"spiral"})")),
      HasSubstr("config.json, rope_scaling: 'type' is the string \"spiral\"; expected one"));
  EXPECT_THAT(error_of(rope(R"({"type":"linear"})")), HasSubstr("missing 'factor'"));
  EXPECT_THAT(error_of(rope(R"({"type":"linear","factor":-1})")), HasSubstr("'factor' is -1"));
  EXPECT_THAT(error_of(rope(R"({"type":"llama3","factor":8})")),
              HasSubstr("missing 'low_freq_factor'"));
  EXPECT_THAT(error_of(rope(R"({"type":"llama3","factor":8,"low_freq_factor":4,
                                "high_freq_factor":4})")),
              HasSubstr("must be greater"));
  EXPECT_THAT(error_of(with("rope_theta", 0)), HasSubstr("'rope_theta' is 0"));
  Json nested = with("rope_parameters", {{"full_attention", {{"rope_theta", 1e4}}}});
  nested["layer_types"] = Json(std::vector<std::string>(3, "full_attention"));
  EXPECT_THAT(error_of(nested), HasSubstr("differs by layer type"));
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
