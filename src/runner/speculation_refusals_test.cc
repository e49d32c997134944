// What cannot draft is refused by name, before any weight is loaded.
#include "runner/speculation_harness_test.h"

namespace atom {
namespace {

std::string refusal(const std::string& folder, const SpeculativeOptions& options) {
  EngineConfig config;
  config.model.model = folder;
  config.speculative = options;
  const Result<ResolvedConfig> resolved = resolve(config, load_model_config(folder).value());
  if (!resolved.ok()) return std::string(resolved.status().message());
  return std::string(ModelRunner::create(*resolved, 384, nullptr).status().message());
}

TEST(SpeculationRefusals, WhatCannotDraftIsRefusedByName) {
  const TemporaryFolder llama, deepseek;
  ASSERT_TRUE(materialize_checkpoint(golden_folder() + "/llama", llama.path()).ok());
  ASSERT_TRUE(materialize_checkpoint(golden_folder() + "/deepseek-v2", deepseek.path()).ok());
  SpeculativeOptions mtp;
  mtp.method = SpeculativeMethod::kMtp;
  EXPECT_NE(refusal(llama.path(), mtp).find("LlamaForCausalLM"), std::string::npos);
  EXPECT_NE(refusal(deepseek.path(), mtp).find("DeepseekV2ForCausalLM"), std::string::npos);
  // A hybrid whose configuration promises a layer that the file does not have.
  const TemporaryFolder qsa;
  ASSERT_TRUE(materialize_checkpoint(golden_folder() + "/qwen3-next-qsa", qsa.path()).ok());
  EXPECT_NE(refusal(qsa.path(), mtp).find("mtp.fc.weight"), std::string::npos)
      << refusal(qsa.path(), mtp);
}

// An EAGLE-3 head whose description was changed.
class SpeculationBadHead : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(materialize_checkpoint(golden_folder() + "/llama", target_.path()).ok());
    config_ = read_json(golden_folder() + "/../eagle3/llama/config.json");
    checkpoint_ = read_json(golden_folder() + "/../eagle3/llama/checkpoint.json");
  }

  // What is said of it.
  std::string refused() {
    const TemporaryFolder head;
    write_head(config_, checkpoint_, head.path());
    SpeculativeOptions options;
    options.method = SpeculativeMethod::kEagle3;
    options.draft_model = head.path();
    return refusal(target_.path(), options);
  }
  void expect_refused(const char* words) {
    const std::string message = refused();
    EXPECT_NE(message.find("--draft-model"), std::string::npos) << message;
    EXPECT_NE(message.find(words), std::string::npos) << message;
  }

  TemporaryFolder target_;
  nlohmann::json config_, checkpoint_;
};

TEST_F(SpeculationBadHead, AnotherVocabulary) {
  config_["vocab_size"] = 512;
  expect_refused("'vocab_size' is 512, but the model's is 384");
}

TEST_F(SpeculationBadHead, AnotherHiddenSize) {
  config_["hidden_size"] = 128;
  expect_refused("'hidden_size' is 128, but the model's hidden_size is 64");
}

TEST_F(SpeculationBadHead, WithoutAnEmbeddingOfItsOtherWidth) {
  config_["hidden_size"] = 128;
  config_["target_hidden_size"] = 64;
  expect_refused("embed_tokens.weight");
}

TEST_F(SpeculationBadHead, LayersThatTheModelDoesNotHave) {
  config_["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = {0, 1, 3};
  expect_refused("eagle_aux_hidden_state_layer_ids");
  config_.erase("eagle_config");  // 2, 3 / 2 and 0
  expect_refused("2, 1, 0");
}

TEST_F(SpeculationBadHead, MissingTensors) {
  checkpoint_["tensors"].erase("midlayer.mlp.up_proj.weight");
  expect_refused("midlayer.mlp.gate_up_proj.weight");
  checkpoint_["tensors"].erase("d2t");
  expect_refused("d2t");
}

TEST_F(SpeculationBadHead, IdsBehindTheVocabulary) {
  checkpoint_["tensors"]["d2t"]["gen"]["step"] = 3;
  expect_refused("'d2t' makes token 384 of id 96");
}

TEST_F(SpeculationBadHead, AnotherKindOfModel) {
  config_["architectures"] = {"EagleLlamaForCausalLM"};
  expect_refused("EagleLlamaForCausalLM");
}

}  // namespace
}  // namespace atom
