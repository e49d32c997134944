// Answers with drafts are those without: random requests in a crowd that shares prefixes, is cut
// into chunks and preempted, against each request alone without drafts.
#include <gtest/gtest.h>

#include "runner/engine_test_support.h"
#include "tests/support/synthetic_checkpoint.h"

namespace atom {
namespace {

EngineConfig crowded_with_drafts(SpeculativeMethod method, int32_t num_tokens) {
  EngineConfig config;
  config.model.dtype = DType::kFloat32;
  config.scheduler.max_num_seqs = 12;
  config.scheduler.max_num_batched_tokens = 60;
  config.cache.num_blocks = 26;
  config.cache.state_checkpoint_interval = 16;
  config.speculative.method = method;
  config.speculative.num_tokens = num_tokens;
  config.speculative.prompt_lookup_min = 1;
  return config;
}

class Speculation : public testing::TestWithParam<const char*> {};

TEST_P(Speculation, DraftLayersChangeNoAnswer) {
  const TemporaryFolder checkpoint;
  ASSERT_TRUE(materialise_checkpoint(golden_folder() + "/" + GetParam(), checkpoint.path()).ok());
  constexpr IdRange kIds{.first = 20, .count = 360};  // of a vocabulary of 384
  std::mt19937 random(11);
  const std::vector<Request> requests = random_requests(16, random, kIds);
  EngineConfig config = crowded_with_drafts(SpeculativeMethod::kMtp, 1);
  config.model.model = checkpoint.path();
  const std::vector<Answer> expected = answers_alone(requests, config, DeviceChoice::kCpu);
  for (const int32_t num_tokens : {1, 2, 3}) {
    SCOPED_TRACE(num_tokens);
    config.speculative.num_tokens = num_tokens;
    Engine engine(config, DeviceChoice::kCpu);
    const auto due = [](uint64_t step) { return step / 2 + 6; };
    expect_answers(requests, expected, engine.run(requests, due), 2e-3);
    const SchedulerStats stats = engine.stats();
    EXPECT_GT(stats.num_draft_tokens, 100 * num_tokens);
    EXPECT_EQ(stats.num_accepted_tokens > 0, stats.num_accepted_at[0] > 0);
    EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
    EXPECT_EQ(stats.num_free_state_slots, stats.num_state_slots);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases,
                         Speculation,
                         testing::Values("deepseek-v3", "glm4-moe", "qwen3-next", "qwen3.5"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::erase_if(name, [](char c) { return c == '-' || c == '.'; });
                           return name;
                         });

TEST(SpeculationMtp, TrainedLayerIsAcceptedAndChangesNoAnswer) {
  const std::optional<std::string> shared = shared_folder();
  if (!shared) GTEST_SKIP() << "no folder beside the project";
  EngineConfig config = crowded_with_drafts(SpeculativeMethod::kMtp, 3);
  config.model.model = *shared + "/models/tldr-mtp-10m";
  std::mt19937 random(12);
  const std::vector<Request> requests = random_requests(24, random);
  const std::vector<Answer> expected = answers_alone(requests, config, DeviceChoice::kCpu);
  Engine engine(config, DeviceChoice::kCpu);
  const auto due = [](uint64_t step) { return step / 2 + 6; };
  expect_answers(requests, expected, engine.run(requests, due), 2e-3);
  EXPECT_GT(engine.stats().num_accepted_tokens, 50);
}

std::string refusal(const std::string& folder, const SpeculativeOptions& options) {
  EngineConfig config;
  config.model.model = folder;
  config.speculative = options;
  const Result<ResolvedConfig> resolved = resolve(config, load_model_config(folder).value());
  if (!resolved.ok()) return std::string(resolved.status().message());
  return std::string(ModelRunner::create(*resolved, 384, nullptr).status().message());
}

TEST(SpeculationMtp, WhatCannotDraftIsRefusedByName) {
  const TemporaryFolder llama, deepseek;
  ASSERT_TRUE(materialise_checkpoint(golden_folder() + "/llama", llama.path()).ok());
  ASSERT_TRUE(materialise_checkpoint(golden_folder() + "/deepseek-v2", deepseek.path()).ok());
  SpeculativeOptions mtp;
  mtp.method = SpeculativeMethod::kMtp;
  EXPECT_NE(refusal(llama.path(), mtp).find("LlamaForCausalLM"), std::string::npos);
  EXPECT_NE(refusal(deepseek.path(), mtp).find("DeepseekV2ForCausalLM"), std::string::npos);
  // A hybrid whose configuration promises a layer that the file does not have.
  const TemporaryFolder qsa;
  ASSERT_TRUE(materialise_checkpoint(golden_folder() + "/qwen3-next-qsa", qsa.path()).ok());
  EXPECT_NE(refusal(qsa.path(), mtp).find("mtp.fc.weight"), std::string::npos)
      << refusal(qsa.path(), mtp);
}

}  // namespace
}  // namespace atom
