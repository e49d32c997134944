#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "config/model_config_test_support.h"

namespace atom {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Json rope(const char* text) {
  return llama_with("rope_scaling", Json::parse(text));
}

TEST(RopeConfig, BothSpellingsMeanTheSame) {
  Json older = rope(R"({"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,
                        "original_max_position_embeddings":64})");
  older["rope_theta"] = 500000;
  Json newer = llama_with("rope_parameters", older["rope_scaling"]);
  newer["rope_parameters"]["rope_theta"] = 500000;
  newer["rope_theta"] = 1234;  // the inner value wins
  const RopeConfig expected = parsed_config(older).rope;
  EXPECT_EQ(expected.type, RopeType::kLlama3);
  EXPECT_EQ(expected.theta, 500000);
  EXPECT_EQ(expected.factor, 8);
  EXPECT_EQ(expected.low_freq_factor, 1);
  EXPECT_EQ(expected.high_freq_factor, 4);
  EXPECT_EQ(expected.original_max_position_embeddings, 64);
  EXPECT_EQ(expected.rotary_dim, 16);
  EXPECT_EQ(parsed_config(newer).rope, expected);
}

TEST(RopeConfig, ANonEmptyRopeScalingReplacesRopeParameters) {
  Json json = rope(R"({"type":"linear","factor":2})");
  json["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 4}};
  EXPECT_EQ(parsed_config(json).rope.type, RopeType::kLinear);
  json["rope_scaling"] = Json::object();
  EXPECT_EQ(parsed_config(json).rope.type, RopeType::kYarn);
  json["rope_scaling"] = nullptr;
  EXPECT_EQ(parsed_config(json).rope.type, RopeType::kYarn);
}

TEST(RopeConfig, YarnDefaults) {
  const RopeConfig yarn =
      parsed_config(rope(R"({"type":"yarn","original_max_position_embeddings":256,"beta_fast":0})"))
          .rope;
  EXPECT_EQ(yarn.factor, 4);  // 1024 / 256
  EXPECT_EQ(yarn.beta_fast, 32);
  EXPECT_EQ(yarn.beta_slow, 1);
  EXPECT_TRUE(yarn.truncate);
  EXPECT_FALSE(yarn.attention_factor.has_value());
  Json json = rope(R"({"type":"yarn","factor":8,"truncate":false,"mscale":1.0,
      "mscale_all_dim":0.707,"attention_factor":1.5,"llama_4_scaling_beta":0.1})");
  json["original_max_position_embeddings"] = 128;
  const RopeConfig full = parsed_config(json).rope;
  EXPECT_EQ(full.original_max_position_embeddings, 128);
  EXPECT_EQ(full.mscale_all_dim, 0.707);
  EXPECT_EQ(full.attention_factor, 1.5);
  EXPECT_EQ(full.llama_4_scaling_beta, 0.1);
  EXPECT_FALSE(full.truncate);
}

TEST(RopeConfig, LongRopeNeedsAFactorPerPair) {
  Json json = rope(R"({"type":"su","short_factor":[1,1,1,1,1,1,1,1],"factor":2})");
  EXPECT_THAT(config_error(json), HasSubstr("'long_factor' has 0 numbers; expected 8"));
  json["rope_scaling"]["long_factor"] = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(parsed_config(json).rope.type, RopeType::kLongRope);
  EXPECT_EQ(parsed_config(json).rope.long_factor[7], 8);
  json["rope_scaling"]["long_factor"][3] = 0;
  EXPECT_THAT(config_error(json), HasSubstr("'long_factor' contains 0"));
}

TEST(RopeConfig, PartialRotation) {
  Json json = llama_with("partial_rotary_factor", 0.25);
  EXPECT_EQ(parsed_config(json).rope.rotary_dim, 4);
  json["rope_parameters"] = {{"partial_rotary_factor", 0.5}};
  EXPECT_EQ(parsed_config(json).rope.rotary_dim, 8);
  EXPECT_THAT(config_error(llama_with("partial_rotary_factor", 0.2)),
              HasSubstr("rotates 3 dimensions"));
  EXPECT_THAT(config_error(llama_with("partial_rotary_factor", 0)),
              HasSubstr("'partial_rotary_factor'"));
}

TEST(RopeConfig, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(
      config_error(rope(R"({"type":"spiral"})")),
      HasSubstr("config.json, rope_scaling: 'type' is the string \"spiral\"; expected one"));
  EXPECT_THAT(config_error(rope(R"({"type":"linear"})")), HasSubstr("missing 'factor'"));
  EXPECT_THAT(config_error(rope(R"({"type":"linear","factor":-1})")), HasSubstr("'factor' is -1"));
  EXPECT_THAT(config_error(rope(R"({"type":"llama3","factor":8})")),
              HasSubstr("missing 'low_freq_factor'"));
  EXPECT_THAT(config_error(rope(R"({"type":"llama3","factor":8,"low_freq_factor":4,
                                "high_freq_factor":4})")),
              HasSubstr("must be greater"));
  EXPECT_THAT(config_error(llama_with("rope_theta", 0)), HasSubstr("'rope_theta' is 0"));
  Json nested = llama_with("rope_parameters", {{"full_attention", {{"rope_theta", 1e4}}}});
  nested["layer_types"] = Json(std::vector<std::string>(3, "full_attention"));
  EXPECT_THAT(config_error(nested), HasSubstr("differs by layer type"));
}

}  // namespace
}  // namespace atom
