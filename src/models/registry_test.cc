#include "models/registry.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/test_folders.h"

namespace atom {
namespace {

Status load_error(const std::string& config_json) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/config.json") << config_json;
  return load_model_config(folder.path()).status();
}

TEST(Registry, AnUnknownArchitectureListsTheKnownOnes) {
  const Status status = load_error(R"({"architectures": ["NoSuchModel"]})");
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  for (const char* text : {"NoSuchModel", "LlamaForCausalLM", "Qwen3ForCausalLM"}) {
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
  }
}

TEST(Registry, AMissingArchitectureIsAnError) {
  EXPECT_NE(load_error("{}").message().find("architectures"), std::string::npos);
  EXPECT_FALSE(load_error(R"({"architectures": []})").ok());
  EXPECT_FALSE(load_error(R"({"architectures": [7]})").ok());
}

TEST(Registry, DefaultsAreTheArchitecturesOwn) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/config.json") << R"({"architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 32, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2})";
  const Result<ModelConfig> config = load_model_config(folder.path());
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->head_dim, 128);
  EXPECT_EQ(config->max_position_embeddings, 32768);
}

TEST(Registry, ConfigurationsWithoutCodeAreRefused) {
  const TemporaryFolder folder;
  const auto create_error = [&](const std::string& extra) {
    std::ofstream(folder.path() + "/config.json") << R"({"architectures": ["LlamaForCausalLM"],
      "vocab_size": 32, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1,
      "num_attention_heads": 4, )" + extra + "}";
    const Result<ModelConfig> config = load_model_config(folder.path());
    if (!config.ok()) return config.status();
    BuildContext build{*config, DType::kFloat32, 64};
    return find_architecture("LlamaForCausalLM").value()->create(build).status();
  };
  EXPECT_TRUE(create_error(R"("hidden_act": "silu")").ok());
  EXPECT_NE(create_error(R"("hidden_act": "gelu")").message().find("'gelu'"), std::string::npos);
  const Status scaled = create_error(
      R"("rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0,
          "original_max_position_embeddings": 512, "llama_4_scaling_beta": 0.1})");
  EXPECT_NE(scaled.message().find("llama_4_scaling_beta"), std::string::npos) << scaled.message();
}

}  // namespace
}  // namespace atom
