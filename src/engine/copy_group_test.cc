// Copies that share their experts, end to end: they answer as one engine does, whatever each has to
// do, with drafts and cached prefixes.
#include "engine/copy_group.h"

#include <gtest/gtest.h>

#include <atomic>

#include "engine/llm_engine.h"
#include "tests/support/synthetic_checkpoint.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

EngineConfig config_of(const std::string& folder) {
  EngineConfig config;
  config.model.model = folder;
  config.model.skip_tokenizer_init = true;
  config.model.dtype = DType::kFloat32;
  config.model.max_model_len = 256;
  config.cache.num_blocks = 64;
  config.cache.state_checkpoint_interval = 16;
  config.device.device = DeviceChoice::kCpu;
  config.device.num_threads = 1;
  return config;
}

std::unique_ptr<LLMEngine> make_engine(const EngineConfig& config) {
  Result<std::unique_ptr<LLMEngine>> engine = LLMEngine::create(config);
  if (!engine.ok()) {
    ADD_FAILURE() << engine.status().message();
    std::abort();
  }
  return std::move(engine).value();
}

// Of different lengths, so that copies end at different times; every second one begins as the one
// before does.
std::vector<Prompt> prompts(size_t count) {
  std::vector<Prompt> result;
  for (size_t i = 0; i < count; ++i) {
    std::vector<int32_t> ids(70 + 5 * i);
    for (size_t t = 0; t < ids.size(); ++t) {
      ids[t] = static_cast<int32_t>((7 * t + (t < 66 ? i / 2 : i)) % 31);
    }
    result.emplace_back(std::move(ids));
  }
  return result;
}

std::vector<SamplingParams> sampling_of(size_t count) {
  std::vector<SamplingParams> sampling(count);
  for (size_t i = 0; i < count; ++i) {
    sampling[i].temperature = i % 3 == 0 ? 0.9f : 0.0f;
    sampling[i].seed = i;
    sampling[i].max_tokens = static_cast<int32_t>(6 + 5 * (i % 4));
    sampling[i].ignore_eos = true;
  }
  sampling[1].n = 2;
  return sampling;
}

struct Way {
  const char* golden;
  int32_t tensor, data;
  bool spreads_experts, separates_attention;
  SpeculativeMethod method = SpeculativeMethod::kOff;
  ExpertDispatch dispatch = ExpertDispatch::kGather;
  bool moves_experts = false;
};

class CopyGroups : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    const Way& way = GetParam();
    ASSERT_TRUE(materialize_checkpoint(golden_folder() + "/" + way.golden, folder_.path()).ok());
    config_ = config_of(folder_.path());
    config_.speculative.method = way.method;
    if (way.method != SpeculativeMethod::kOff) config_.speculative.num_tokens = 2;
  }

  EngineConfig shared() const {
    const Way& way = GetParam();
    EngineConfig config = config_;
    config.parallel.tensor_parallel_size = way.tensor;
    config.parallel.data_parallel_size = way.data;
    config.parallel.enable_expert_parallel = way.spreads_experts;
    config.parallel.enable_dp_attention = way.separates_attention;
    config.parallel.expert_dispatch = way.dispatch;
    if (way.moves_experts) {
      config.parallel.eplb.enabled = true;
      config.parallel.eplb.json = R"({"rebalance_interval": 5, "num_redundant_experts": 4})";
    }
    return config;
  }

  TemporaryFolder folder_;
  EngineConfig config_;
};

TEST_P(CopyGroups, AnswerAsOneEngineDoes) {
  constexpr size_t kCount = 7;
  const std::vector<SamplingParams> sampling = sampling_of(kCount);
  const auto expected = make_engine(config_)->generate(prompts(kCount), sampling);
  const auto engine = make_engine(shared());
  for (int wave = 0; wave < 2; ++wave) {
    const auto ours = engine->generate(prompts(kCount), sampling);
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_TRUE(ours[i].status.ok()) << ours[i].status.message();
      for (size_t k = 0; k < expected[i].outputs.size(); ++k) {
        EXPECT_EQ(ours[i].outputs[k].token_ids, expected[i].outputs[k].token_ids) << i;
      }
    }
  }
  // One request alone: all other copies compute dummies.
  const uint64_t num_dummies = engine->stats().num_dummy_steps;
  const std::vector<Prompt> one = prompts(1);
  EXPECT_TRUE(engine->generate(one, std::span(sampling).first(1))[0].status.ok());
  const CoreStats stats = engine->stats();
  EXPECT_GE(stats.num_dummy_steps, num_dummies + 2);
  EXPECT_GT(stats.num_shared_prefills, 0u);
  EXPECT_LE(stats.num_shared_step_tokens, stats.num_largest_step_tokens * 4);
  EXPECT_GT(stats.prefix_cache_hits, 0u);
  EXPECT_EQ(stats.num_running, 0);
  EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
  if (GetParam().method != SpeculativeMethod::kOff) {
    EXPECT_GT(stats.num_draft_tokens, 0u);
  }
  EXPECT_EQ(stats.num_expert_moves > 0, GetParam().moves_experts);
  EXPECT_EQ(stats.num_expert_tokens > 0, GetParam().moves_experts);
  EXPECT_LE(stats.num_expert_tokens, stats.num_largest_expert_tokens);
}

using Method = SpeculativeMethod;
INSTANTIATE_TEST_SUITE_P(
    Ways,
    CopyGroups,
    testing::Values(
        Way{"qwen3-moe", 1, 2, true, false},
        Way{"qwen3-moe", 2, 2, true, false, Method::kNgram, ExpertDispatch::kAllToAll},
        Way{"deepseek-v3", 1, 2, true, false, Method::kMtp, ExpertDispatch::kAllToAll},
        Way{"deepseek-v3", 2, 1, false, true, Method::kMtp},
        Way{"deepseek-v3", 2, 2, true, false, Method::kMtp, ExpertDispatch::kAllToAll, true},
        Way{"qwen3-moe", 2, 2, true, true, Method::kNgram, ExpertDispatch::kGather, true},
        Way{"qwen3-next", 2, 2, true, true, Method::kOff, ExpertDispatch::kAllToAll}));

// Requests that are aborted anywhere, beside others that go on.
TEST(CopyGroup, AbortsHarmNobodyAndLeaveNothing) {
  const TemporaryFolder folder;
  ASSERT_TRUE(materialize_checkpoint(golden_folder() + "/qwen3-moe", folder.path()).ok());
  EngineConfig config = config_of(folder.path());
  config.parallel.data_parallel_size = 3;
  config.parallel.enable_expert_parallel = true;
  const auto engine = make_engine(config);
  constexpr int kCount = 24;
  std::atomic<int> num_finished{0}, num_aborted{0}, num_failed{0};
  std::vector<RequestId> ids;
  SamplingParams sampling;
  sampling.max_tokens = 40;
  sampling.ignore_eos = true;
  for (int i = 0; i < kCount; ++i) {
    sampling.seed = i;
    const auto id = engine->submit(
        prompts(i % 5 + 1).back(), sampling, [&](const RequestOutput& output, const auto&) {
          if (!output.finished) return;
          if (!output.status.ok()) ++num_failed;
          if (output.outputs[0].finish_reason == FinishReason::kAbort) ++num_aborted;
          ++num_finished;
        });
    ASSERT_TRUE(id.ok());
    ids.push_back(*id);
    if (i % 2 == 1) engine->abort(ids[i / 2]);
  }
  while (num_finished < kCount) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(num_failed, 0);
  EXPECT_LT(num_aborted, kCount);
  EXPECT_GT(num_aborted, 0);
  const SamplingParams last = sampling_of(2)[0];
  EXPECT_TRUE(engine->generate(prompts(1), std::span(&last, 1))[0].status.ok());
  EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
}

TEST(CopyGroup, WhatCannotStartSaysWhyOnce) {
  const TemporaryFolder folder;
  ASSERT_TRUE(materialize_checkpoint(golden_folder() + "/qwen3-moe", folder.path()).ok());
  EngineConfig config = config_of(folder.path());
  config.parallel.data_parallel_size = 9;
  config.parallel.enable_expert_parallel = true;
  const Status refused = LLMEngine::create(config).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented);
  EXPECT_NE(refused.message().find("has 8 experts, less than one for each of 9 ranks"),
            std::string::npos)
      << refused.message();
}

}  // namespace
}  // namespace atom
