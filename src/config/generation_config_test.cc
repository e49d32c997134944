#include "config/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
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

// A folder with a generation_config.json.
std::string folder_with(const std::string& json) {
  const std::string folder =
      testing::TempDir() + "generation_config_" + std::to_string(json.size());
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/generation_config.json") << json;
  return folder;
}

TEST(GenerationConfig, TheCommandLineChoosesTheDefaults) {
  ModelSourceConfig source;
  source.model = folder_with(R"({"temperature": 0.6, "top_k": 20, "eos_token_id": [7]})");
  GenerationConfig config = load_generation_config(source, 100).value();
  EXPECT_EQ(config.temperature, 0.6f);
  EXPECT_EQ(config.top_k, 20);

  source.override_generation_config = R"({"temperature": 0.25, "max_new_tokens": 9})";
  config = load_generation_config(source, 100).value();
  EXPECT_EQ(config.temperature, 0.25f);
  EXPECT_EQ(config.top_k, 20);
  EXPECT_EQ(config.max_new_tokens, 9);

  source.override_generation_config.clear();
  source.generation_config = "vllm";
  config = load_generation_config(source, 100).value();
  EXPECT_FALSE(config.temperature);
  EXPECT_FALSE(config.top_k);
  EXPECT_EQ(config.eos_token_ids, std::vector<int32_t>{7});

  source.generation_config = folder_with(R"({"top_p": 0.5})");
  config = load_generation_config(source, 100).value();
  EXPECT_EQ(config.top_p, 0.5f);
  EXPECT_FALSE(config.temperature);
  EXPECT_EQ(config.eos_token_ids, std::vector<int32_t>{7});
}

TEST(GenerationConfig, WrongChoicesNameTheOption) {
  ModelSourceConfig source;
  source.model = folder_with("{}");
  source.generation_config = "/nonexistent";
  EXPECT_THAT(load_generation_config(source, 100).status().message(),
              HasSubstr("--generation-config is '/nonexistent'"));
  source.generation_config = "auto";
  for (const char* text : {R"({"temprature": 1})", R"({"temperature": -1})", "[]", "{"}) {
    source.override_generation_config = text;
    EXPECT_THAT(load_generation_config(source, 100).status().message(),
                HasSubstr("--override-generation-config"))
        << text;
  }
}

}  // namespace
}  // namespace atom
