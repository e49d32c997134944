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

// What creating a model of a valid configuration plus `extra` says.
std::string create_error(const std::string& architecture,
                         const std::string& extra,
                         int num_layers = 2) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/config.json") << fmt::format(
      R"({{"architectures": ["{}"], "vocab_size": 32, "hidden_size": 64, "num_hidden_layers": {},
           "num_attention_heads": 4, "num_key_value_heads": 2, {}}})",
      architecture,
      num_layers,
      extra);
  const Result<ModelConfig> config = load_model_config(folder.path());
  if (!config.ok()) return config.status().message();
  BuildContext build{*config, DType::kFloat32, 64};
  const auto model = find_architecture(architecture).value()->create(build);
  return model.ok() ? build.status.message() : model.status().message();
}

struct BadConfig {
  const char* architecture;
  const char* extra;
  const char* error;  // "" when it is right
};

constexpr BadConfig kMoeConfigs[] = {
    {"MixtralForCausalLM",
     R"("intermediate_size": 32, "num_local_experts": 4, "num_experts_per_tok": 2)",
     ""},
    {"MixtralForCausalLM",
     R"("intermediate_size": 32, "num_experts_per_tok": 2)",
     "'num_local_experts'"},
    {"MixtralForCausalLM",
     R"("intermediate_size": 32, "num_local_experts": 4)",
     "'num_experts_per_tok'"},
    {"MixtralForCausalLM",
     R"("intermediate_size": 32, "num_local_experts": 4, "num_experts_per_tok": 5)",
     "more than the 4 experts"},
    {"MixtralForCausalLM",
     R"("intermediate_size": 32, "num_local_experts": "4", "num_experts_per_tok": 2)",
     "'num_local_experts'"},
    {"Qwen3MoeForCausalLM",
     R"("num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16)",
     ""},
    {"Qwen3MoeForCausalLM",
     R"("num_experts": 4, "num_experts_per_tok": 2)",
     "'moe_intermediate_size'"},
    {"Qwen3MoeForCausalLM",
     R"("num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "decoder_sparse_step": 0)",
     "'decoder_sparse_step'"},
    {"Qwen3MoeForCausalLM",
     R"("num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "mlp_only_layers": [0])",
     "missing 'intermediate_size'"},
    {"Qwen3MoeForCausalLM",
     R"("num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "mlp_only_layers": [2])",
     "'mlp_only_layers'"},
    {"Glm4MoeForCausalLM",
     R"("n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "first_k_dense_replace": 0)",
     ""},
    {"Glm4MoeForCausalLM",
     R"("n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16)",
     "missing 'intermediate_size'"},
    {"Glm4MoeForCausalLM",
     R"("n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "first_k_dense_replace": 3)",
     "'first_k_dense_replace'"},
    {"Glm4MoeForCausalLM",
     R"("n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "first_k_dense_replace": 0, "n_group": 3)",
     "'n_group' 3 does not divide the 4 experts"},
    {"Glm4MoeForCausalLM",
     R"("n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "first_k_dense_replace": 0, "n_group": 4, "topk_group": 1)",
     "'topk_group' 1 leaves 1 experts"},
    {"Glm4MoeForCausalLM",
     R"("n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "first_k_dense_replace": 0, "n_shared_experts": -1)",
     "'n_shared_experts'"},
    {"DeepseekV2ForCausalLM",
     R"("kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
        "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16)",
     ""},
    {"DeepseekV3ForCausalLM",
     R"("kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
        "q_lora_rank": 24, "intermediate_size": 32)",
     ""},
    {"DeepseekV3ForCausalLM",
     R"("n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16)",
     "'kv_lora_rank'"},
    {"DeepseekV3ForCausalLM",
     R"("kv_lora_rank": 32, "qk_nope_head_dim": 16, "v_head_dim": 16,
        "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16)",
     "'qk_rope_head_dim'"},
    {"DeepseekV3ForCausalLM",
     R"("kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
        "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "first_k_dense_replace": 1)",
     "missing 'intermediate_size'"},
    {"DeepseekV3ForCausalLM",
     R"("kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
        "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "topk_method": "best")",
     "'topk_method' \"best\""},
    {"GptOssForCausalLM",
     R"("intermediate_size": 32, "num_local_experts": 4, "experts_per_token": 2)",
     ""},
    {"GptOssForCausalLM",
     R"("intermediate_size": 32, "num_local_experts": 4, "num_experts_per_tok": 2,
        "swiglu_limit": -7)",
     "'swiglu_limit'"},
};

TEST(Registry, RefusesMixturesOfExpertsThatMakeNoSense) {
  for (const auto& [architecture, extra, error] : kMoeConfigs) {
    const std::string message = create_error(architecture, extra);
    if (*error == '\0') {
      EXPECT_EQ(message, "") << architecture << ": " << extra;
    } else {
      EXPECT_NE(message.find(error), std::string::npos) << architecture << ": " << extra << "\n"
                                                        << message;
    }
  }
}

// They would take gigabytes to plan.
TEST(Registry, RefusesMoreExpertsThanAnyModelHas) {
  const std::string extra =
      R"("intermediate_size": 32, "num_local_experts": 1024, "num_experts_per_tok": 2)";
  EXPECT_EQ(create_error("MixtralForCausalLM", extra, 10'000),
            "config.json: 'num_local_experts' 1024 in 'num_hidden_layers' 10000 are more than "
            "131072 experts together");
}

}  // namespace
}  // namespace atom
