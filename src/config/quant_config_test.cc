#include "config/quant_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace atom {
namespace {

using ::testing::HasSubstr;

constexpr const char* kModule = "model.layers.3.mlp.down_proj";
const QuantScheme kChannelDynamic = {QuantType::kPerToken, QuantType::kPerToken, false, false};
const QuantScheme kTensorStatic = {QuantType::kPerTensor, QuantType::kPerTensor, true, false};
const QuantScheme kNone = {};

Json compressed_tensors() {
  return Json::parse(R"({"quant_method": "compressed-tensors", "format": "float-quantized",
      "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"],
        "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": true},
        "input_activations": {"num_bits": 8, "type": "float", "strategy": "token",
                              "dynamic": true}}}})");
}

Json& weights_of(Json& json) {
  return json["config_groups"]["group_0"]["weights"];
}

Json& inputs_of(Json& json) {
  return json["config_groups"]["group_0"]["input_activations"];
}

QuantConfig parse(const Json& json) {
  const Result<QuantConfig> config = parse_quant_config(json);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? *config : QuantConfig();
}

std::string error_of(const Json& json, StatusCode code = StatusCode::kUnimplemented) {
  const Status status = parse_quant_config(json).status();
  EXPECT_EQ(status.code(), code) << status.message();
  return status.message();
}

TEST(QuantConfig, NullIsNotQuantised) {
  const QuantConfig config = parse(Json());
  EXPECT_FALSE(config.is_quantized());
  EXPECT_EQ(config.scheme_of(kModule), kNone);
  EXPECT_EQ(config.to_string(), "none");
}

TEST(QuantConfig, CompressedTensors) {
  Json json = compressed_tensors();
  EXPECT_EQ(parse(json).scheme_of(kModule), kChannelDynamic);
  EXPECT_EQ(parse(json).scheme_of("lm_head"), kNone);
  EXPECT_FALSE(parse(json).fp8_kv_cache);
  EXPECT_EQ(parse(json).to_string(), "fp8 weights per_Token, activations per_Token (dynamic)");

  weights_of(json)["strategy"] = "tensor";
  inputs_of(json)["strategy"] = "tensor";
  inputs_of(json)["dynamic"] = false;
  json["kv_cache_scheme"] = {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}};
  EXPECT_EQ(parse(json).scheme_of(kModule), kTensorStatic);
  EXPECT_TRUE(parse(json).fp8_kv_cache);

  inputs_of(json) = nullptr;
  EXPECT_EQ(parse(json).scheme_of(kModule).activations, QuantType::kNo);
}

TEST(QuantConfig, LayersBelongToTheFirstGroupThatMatches) {
  Json json = compressed_tensors();
  json["config_groups"]["group_0"]["targets"] = {"re:.*self_attn.*"};
  json["config_groups"]["group_1"] = json["config_groups"]["group_0"];
  json["config_groups"]["group_1"]["targets"] = {"Linear"};
  json["config_groups"]["group_1"]["weights"]["strategy"] = "tensor";
  json["ignore"] = {"re:.*o_proj"};
  const QuantConfig config = parse(json);
  EXPECT_EQ(config.scheme_of("model.layers.0.self_attn.q_proj").weights, QuantType::kPerToken);
  EXPECT_EQ(config.scheme_of(kModule).weights, QuantType::kPerTensor);
  EXPECT_EQ(config.scheme_of("model.layers.0.self_attn.o_proj"), kNone);
}

TEST(QuantConfig, HuggingFaceFp8) {
  Json json = {{"quant_method", "fp8"}, {"activation_scheme", "static"}};
  json["ignored_layers"] = {"lm_head"};
  json["modules_to_not_convert"] = {"model.layers.1"};
  EXPECT_EQ(parse(json).scheme_of(kModule), kTensorStatic);
  EXPECT_EQ(parse(json).scheme_of("lm_head"), kNone);
  EXPECT_EQ(parse(json).scheme_of("model.layers.1.mlp.up_proj"), kNone);
  EXPECT_EQ(parse(json).scheme_of("model.layers.10.mlp.up_proj"), kTensorStatic);
  json["activation_scheme"] = "dynamic";
  const QuantScheme expected = {QuantType::kPerTensor, QuantType::kPerToken, false, false};
  EXPECT_EQ(parse(json).scheme_of(kModule), expected);
}

TEST(QuantConfig, RefusesOtherSchemesByName) {
  EXPECT_THAT(error_of({{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}),
              HasSubstr("'weight_block_size' 128 x 128) are not supported yet; supported is"));
  EXPECT_THAT(error_of({{"quant_method", "fp8"}, {"fmt", "e5m2"}}), HasSubstr("'fmt' 'e5m2'"));
  EXPECT_THAT(error_of({{"quant_method", "fp8"}, {"activation_scheme", "odd"}},
                       StatusCode::kInvalidArgument),
              HasSubstr("expected 'dynamic' or 'static'"));
  EXPECT_THAT(error_of({{"quant_method", "mxfp4"}}), HasSubstr("'mxfp4' is not supported yet"));

  Json json = compressed_tensors();
  weights_of(json)["type"] = "int";
  EXPECT_THAT(error_of(json),
              HasSubstr("group_0: weights of 8-bit int per channel are not supported yet; "
                        "supported are FP8"));
  json = compressed_tensors();
  weights_of(json)["strategy"] = "block";
  EXPECT_THAT(error_of(json), HasSubstr("weights of 8-bit float per block"));
  json = compressed_tensors();
  inputs_of(json)["dynamic"] = "local";
  EXPECT_THAT(error_of(json), HasSubstr("'dynamic' \"local\""));
  json = compressed_tensors();
  inputs_of(json)["strategy"] = "group";
  EXPECT_THAT(error_of(json), HasSubstr("input activations of 8-bit float per group (dynamic)"));
  json = compressed_tensors();
  json["sparsity_config"] = {{"format", "sparse-24-bitmask"}};
  EXPECT_THAT(error_of(json), HasSubstr("'sparsity_config' is not supported"));
  json = compressed_tensors();
  json["kv_cache_scheme"] = {{"num_bits", 8}, {"type", "int"}};
  EXPECT_THAT(error_of(json), HasSubstr("kv_cache_scheme: 8-bit int per tensor"));
  json = compressed_tensors();
  json.erase("config_groups");
  EXPECT_THAT(error_of(json, StatusCode::kInvalidArgument), HasSubstr("'config_groups'"));
}

bool matches(const std::string& pattern, std::string_view module) {
  const Result<ModulePattern> parsed = ModulePattern::parse(pattern);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return parsed.ok() && parsed->matches(module);
}

TEST(ModulePattern, ExactPrefixSuffixGlobAndExpression) {
  EXPECT_TRUE(matches("lm_head", "lm_head"));
  EXPECT_TRUE(matches("model.layers.3", kModule));
  EXPECT_FALSE(matches("model.layers.3", "model.layers.31.mlp.down_proj"));
  EXPECT_TRUE(matches("mlp.down_proj", kModule));
  EXPECT_FALSE(matches("p.down_proj", kModule));
  EXPECT_FALSE(matches("layers.3", kModule));
  EXPECT_FALSE(matches("", kModule));
  EXPECT_TRUE(matches("Linear", kModule));

  EXPECT_TRUE(matches("*.down_proj", kModule));
  EXPECT_TRUE(matches("model.layers.?.mlp*", kModule));
  EXPECT_FALSE(matches("*.up_proj", kModule));
  EXPECT_FALSE(matches("model.layers.?.mlp", kModule));

  EXPECT_TRUE(matches("re:.*mlp.down_proj$", kModule));
  EXPECT_TRUE(matches("re:model\\.layers\\.[0-4]\\.", kModule));
  EXPECT_FALSE(matches("re:layers", kModule));  // from the start
  EXPECT_FALSE(matches("re:.*mlp.gate$", kModule));
}

TEST(ModulePattern, RefusesBadExpressionsAndIsNotSlow) {
  EXPECT_EQ(ModulePattern::parse("re:(").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ModulePattern::parse("re:a{9}").status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(ModulePattern::parse(std::string(1000, 'a')).status().message(),
              HasSubstr("1000 bytes"));
  // Exponential for a matcher that tries one way after the other.
  EXPECT_FALSE(matches("re:(a*)*(a*)*(a*)*b", std::string(200, 'a')));
}

}  // namespace
}  // namespace atom
