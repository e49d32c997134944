#include "config/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace atom {
namespace {

using ::testing::HasSubstr;

TEST(GenerationConfig, SeedsRequestsWithWhatTheFileSets) {
  const auto config = parse_generation_config(
      Json::parse(R"({"temperature":0.6,"top_k":20,"top_p":0.95,"do_sample":true,
                      "eos_token_id":[5,6],"bos_token_id":1,"pad_token_id":100})"),
      100);
  ASSERT_TRUE(config.ok()) << config.status().message();
  SamplingParams params;
  params.min_p = 0.25f;
  config->apply_to(&params);
  EXPECT_FLOAT_EQ(params.temperature, 0.6f);
  EXPECT_EQ(params.top_k, 20);
  EXPECT_FLOAT_EQ(params.top_p, 0.95f);
  EXPECT_EQ(params.min_p, 0.25f);
  EXPECT_EQ(params.max_tokens, SamplingParams().max_tokens);
  EXPECT_EQ(config->eos_token_ids, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(config->bos_token_id, 1);
  EXPECT_EQ(config->do_sample, true);
  EXPECT_FALSE(config->pad_token_id.has_value());
}

TEST(GenerationConfig, NothingSetChangesNothing) {
  const auto config = parse_generation_config(Json::object(), 100);
  ASSERT_TRUE(config.ok());
  SamplingParams params;
  params.temperature = 0.5f;
  config->apply_to(&params);
  EXPECT_EQ(params.temperature, 0.5f);
  EXPECT_TRUE(load_generation_config("/nowhere", 100).ok());
}

TEST(GenerationConfig, RefusesValuesOutOfRange) {
  for (const char* text : {R"({"temperature":-1})",
                           R"({"temperature":"hot"})",
                           R"({"top_k":-2})",
                           R"({"top_k":1.5})",
                           R"({"top_p":0})",
                           R"({"top_p":1.5})",
                           R"({"min_p":2})",
                           R"({"repetition_penalty":0})",
                           R"({"max_new_tokens":-1})",
                           R"({"max_new_tokens":99999999999})",
                           R"({"eos_token_id":100})",
                           R"({"eos_token_id":[1,100]})",
                           R"({"bos_token_id":-1})",
                           R"([])"}) {
    const auto config = parse_generation_config(Json::parse(text), 100);
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_THAT(config.status().message(), HasSubstr("generation_config.json: ")) << text;
  }
}

}  // namespace
}  // namespace atom
