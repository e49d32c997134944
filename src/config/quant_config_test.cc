#include "config/quant_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "config/online_quant_config.h"

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

TEST(QuantConfig, NullIsNotQuantized) {
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

TEST(QuantConfig, HuggingFaceFp8InBlocks) {
  Json json = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  const QuantScheme expected = {QuantType::kPer128x128, QuantType::kPer1x128, false, false};
  EXPECT_EQ(parse(json).scheme_of(kModule), expected);
  // Nobody lists what chooses experts.
  EXPECT_EQ(parse(json).scheme_of("model.layers.3.mlp.gate"), kNone);
  EXPECT_EQ(parse(json).scheme_of("model.layers.3.mlp.gate_proj"), expected);
  json["activation_scheme"] = "static";
  EXPECT_THAT(error_of(json), HasSubstr("static activations"));
}

QuantScheme scheme_of_weights(const Json& weights, const Json& inputs, const char* format) {
  Json json = compressed_tensors();
  json["format"] = format;
  weights_of(json) = weights;
  inputs_of(json) = inputs;
  return parse(json).scheme_of(kModule);
}

TEST(QuantConfig, CompressedTensorsOfOtherTypes) {
  const Json int8 = {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}};
  const Json int8_token = {
      {"num_bits", 8}, {"type", "int"}, {"strategy", "token"}, {"dynamic", true}};
  EXPECT_EQ(scheme_of_weights(int8, int8_token, "int-quantized"),
            (QuantScheme{QuantType::kPerToken,
                         QuantType::kPerToken,
                         false,
                         false,
                         QuantDType::kInt8,
                         QuantDType::kInt8}));
  const Json block = {
      {"num_bits", 8}, {"type", "float"}, {"strategy", "block"}, {"block_structure", {128, 128}}};
  const Json group = {{"num_bits", 8},
                      {"type", "float"},
                      {"strategy", "group"},
                      {"group_size", 128},
                      {"dynamic", true}};
  EXPECT_EQ(scheme_of_weights(block, group, "float-quantized"),
            (QuantScheme{QuantType::kPer128x128, QuantType::kPer1x128, false, false}));
  const Json int4 = {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 128}};
  const QuantScheme four_bits = scheme_of_weights(int4, nullptr, "pack-quantized");
  EXPECT_EQ(four_bits.weights, QuantType::kPer1x128);
  EXPECT_EQ(four_bits.weight_dtype, QuantDType::kInt4);
  EXPECT_EQ(four_bits.activations, QuantType::kNo);
  EXPECT_EQ(four_bits.to_string(), "int4 weights per_1x128, activations unquantized");
  const Json fp4 = {{"num_bits", 4}, {"type", "float"}, {"strategy", "group"}, {"group_size", 32}};
  EXPECT_EQ(scheme_of_weights(fp4, nullptr, "mxfp4-pack-quantized").weight_dtype,
            QuantDType::kFloat4E2M1);
}

Json quark() {
  return Json::parse(R"({"quant_method": "quark", "exclude": ["lm_head", "re:.*mlp.gate$"],
      "export": {"weight_format": "real_quantized", "pack_method": "reorder"},
      "layer_quant_config": {"*.self_attn.*": {
        "weight": {"dtype": "fp8_e4m3", "qscheme": "per_channel", "is_dynamic": false,
                   "symmetric": true},
        "input_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_channel", "is_dynamic": true}}},
      "global_quant_config": {
        "weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "symmetric": null,
                   "scale_format": "e8m0", "is_dynamic": false},
        "input_tensors": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32,
                          "scale_format": "e8m0", "is_dynamic": true},
        "output_tensors": null, "bias": null}})");
}

TEST(QuantConfig, QuarkByLayersAndGlobally) {
  const QuantConfig config = parse(quark());
  const QuantScheme mxfp4 = config.scheme_of(kModule);
  EXPECT_EQ(mxfp4.weights, QuantType::kPer1x32);
  EXPECT_EQ(mxfp4.activations, QuantType::kPer1x32);
  EXPECT_EQ(mxfp4.weight_dtype, QuantDType::kFloat4E2M1);
  EXPECT_EQ(mxfp4.to_string(), "fp4 weights per_1x32, activations per_1x32 (dynamic)");
  EXPECT_EQ(config.scheme_of("model.layers.0.self_attn.q_proj"), kChannelDynamic);
  EXPECT_EQ(config.scheme_of("lm_head"), kNone);
  EXPECT_EQ(config.scheme_of("model.layers.0.mlp.gate"), kNone);
  EXPECT_FALSE(config.fp8_kv_cache);

  Json json = quark();
  json["global_quant_config"]["input_tensors"] = {
      {"dtype", "fp8_e4m3"}, {"qscheme", "per_tensor"}, {"is_dynamic", false}};
  const QuantScheme w4a8 = parse(json).scheme_of(kModule);
  EXPECT_TRUE(w4a8.static_activations);
  EXPECT_EQ(w4a8.activation_dtype, QuantDType::kFloat8E4M3);
  json["layer_quant_config"]["*k_proj"] = {
      {"output_tensors",
       {{"dtype", "fp8_e4m3"}, {"qscheme", "per_tensor"}, {"is_dynamic", false}}}};
  EXPECT_TRUE(parse(json).fp8_kv_cache);
}

TEST(QuantConfig, RefusesWhatQuarkCanSayAndIsNotComputed) {
  const auto error = [](const std::function<void(Json&)>& change) {
    Json json = quark();
    change(json);
    return error_of(json);
  };
  EXPECT_THAT(
      error([](Json& json) { json["global_quant_config"]["weight"]["dtype"] = "fp6_e2m3"; }),
      HasSubstr("global_quant_config: weights of fp6_e2m3 per_group of 32"));
  EXPECT_THAT(error([](Json& json) {
                json["global_quant_config"]["weight"] = Json::array({Json::object()});
              }),
              HasSubstr("'weight' in two levels"));
  EXPECT_THAT(error([](Json& json) { json["export"]["weight_format"] = "fake_quantized"; }),
              HasSubstr("'weight_format' 'fake_quantized'"));
  EXPECT_THAT(error([](Json& json) { json["global_quant_config"]["weight"]["symmetric"] = false; }),
              HasSubstr("zero points"));
  EXPECT_THAT(error([](Json& json) {
                json["global_quant_config"]["output_tensors"] = {{"dtype", "fp8_e4m3"},
                                                                 {"qscheme", "per_tensor"}};
              }),
              HasSubstr("output_tensors of fp8_e4m3"));
  Json empty = {{"quant_method", "quark"}};
  EXPECT_THAT(error_of(empty, StatusCode::kInvalidArgument), HasSubstr("'global_quant_config'"));
}

TEST(QuantConfig, ExpertsOfGptOssAreInFp4) {
  const QuantConfig config =
      parse({{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"model.layers.*.self_attn"}}});
  EXPECT_EQ(config.scheme_of("model.layers.0.mlp.experts").weight_dtype, QuantDType::kFloat4E2M1);
  EXPECT_EQ(config.scheme_of("model.layers.0.self_attn.q_proj"), kNone);
  EXPECT_EQ(config.scheme_of("lm_head"), kNone);
}

TEST(OnlineQuantConfig, FormatsByLayers) {
  const Result<QuantConfig> config = parse_online_quant_config(
      R"({"global_quant_config": "ptpc_fp8", "layer_quant_config": {"*.mlp.*": "mxfp4"},
          "exclude_layer": ["model.layers.0"]})");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->scheme_of(kModule).weight_dtype, QuantDType::kFloat4E2M1);
  EXPECT_EQ(config->scheme_of("model.layers.1.self_attn.o_proj"),
            (QuantScheme{QuantType::kPerToken, QuantType::kPerToken, false, true}));
  EXPECT_EQ(config->scheme_of("model.layers.0.mlp.up_proj"), kNone);
  EXPECT_EQ(config->scheme_of("model.layers.1.mlp.gate"), kNone);

  const auto error = [](const char* text) {
    return parse_online_quant_config(text).status().message();
  };
  EXPECT_THAT(error(R"({"global_quant_config": "mxfp8"})"), HasSubstr("'mxfp8'; supported are"));
  EXPECT_THAT(error(R"({"layers": {}})"), HasSubstr("unknown key 'layers'"));
  EXPECT_THAT(error("{}"), HasSubstr("names no format"));
  EXPECT_THAT(error("[]"), HasSubstr("expected a JSON object"));
}

TEST(QuantConfig, RefusesOtherSchemesByName) {
  EXPECT_THAT(error_of({{"quant_method", "fp8"}, {"weight_block_size", {1, 32}}}),
              HasSubstr("blocks of 1 x 32 ('weight_block_size') are not supported; supported are"));
  EXPECT_THAT(error_of({{"quant_method", "fp8"}, {"fmt", "e5m2"}}), HasSubstr("'fmt' 'e5m2'"));
  EXPECT_THAT(error_of({{"quant_method", "fp8"}, {"activation_scheme", "odd"}},
                       StatusCode::kInvalidArgument),
              HasSubstr("expected 'dynamic' or 'static'"));
  EXPECT_THAT(error_of({{"quant_method", "awq"}}), HasSubstr("'awq' is not supported"));

  Json json = compressed_tensors();
  weights_of(json)["num_bits"] = 6;
  EXPECT_THAT(error_of(json),
              HasSubstr("group_0: weights of 6-bit float per channel are not supported; supported "
                        "are weights in FP8"));
  json = compressed_tensors();
  weights_of(json)["type"] = "int";
  EXPECT_THAT(error_of(json), HasSubstr("'format' 'float-quantized' are not supported; expected"));
  json = compressed_tensors();
  weights_of(json)["strategy"] = "block";
  EXPECT_THAT(error_of(json), HasSubstr("weights of 8-bit float per block"));
  json = compressed_tensors();
  weights_of(json)["actorder"] = "group";
  EXPECT_THAT(error_of(json), HasSubstr("'actorder' \"group\""));
  json = compressed_tensors();
  inputs_of(json)["dynamic"] = "local";
  EXPECT_THAT(error_of(json), HasSubstr("'dynamic' \"local\""));
  json = compressed_tensors();
  inputs_of(json)["type"] = "int";
  EXPECT_THAT(error_of(json), HasSubstr("input activations of 8-bit int per token (dynamic)"));
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
