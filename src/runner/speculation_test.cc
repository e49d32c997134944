// Answers with drafts are those without, for every method and architecture.
#include "runner/speculation_harness_test.h"
#include "tests/support/mtp_case.h"

namespace atom {
namespace {

std::string letters_of(std::string name) {
  std::erase_if(name, [](char c) { return c == '-' || c == '.'; });
  return name;
}

class SpeculationMtp : public testing::TestWithParam<const char*> {
 protected:
  // The case's checkpoint, with draft layers.
  void materialize() {
    const std::string folder = golden_folder() + "/" + GetParam();
    const std::string name = GetParam();
    const bool has_layer =
        name.find("v32") == std::string::npos && !name.starts_with("glm-moe-dsa");
    const Status made = has_layer ? materialize_checkpoint(folder, checkpoint_.path())
                                  : materialize_with_mtp(folder, checkpoint_.path());
    ASSERT_TRUE(made.ok()) << made.message();
  }

  TemporaryFolder checkpoint_;
};

TEST_P(SpeculationMtp, ChangesNoAnswer) {
  ASSERT_NO_FATAL_FAILURE(materialize());
  EngineConfig config = crowded_with_drafts(SpeculativeMethod::kMtp, 1);
  config.model.model = checkpoint_.path();
  const Totals totals = check_drafts(config, requests_of(num_speculation_requests(), 11));
  EXPECT_GT(totals.num_drafts, 400);
  EXPECT_GT(totals.num_accepted, 0);
}

INSTANTIATE_TEST_SUITE_P(Cases,
                         SpeculationMtp,
                         testing::Values("deepseek-v3",
                                         "deepseek-v32",
                                         "glm-moe-dsa-shared",
                                         "glm4-moe",
                                         "qwen3-next",
                                         "qwen3.5",
                                         "qwen3.5-moe"),
                         [](const auto& tested) { return letters_of(tested.param); });

class SpeculationEagle3 : public testing::TestWithParam<const char*> {};

TEST_P(SpeculationEagle3, ChangesNoAnswer) {
  const std::string name = GetParam();
  const TemporaryFolder target, head;
  ASSERT_TRUE(materialize_checkpoint(golden_folder() + "/" + name, target.path()).ok());
  ASSERT_NO_FATAL_FAILURE(write_head_of_few_ids(name, head.path()));
  EngineConfig config = crowded_with_drafts(SpeculativeMethod::kEagle3, 1);
  config.model.model = target.path();
  config.speculative.draft_model = head.path();
  const Totals totals = check_drafts(config, requests_of(num_speculation_requests(), 13, {0, 31}));
  EXPECT_GT(totals.num_drafts, 400);
  EXPECT_GT(totals.num_accepted, 40);
}

INSTANTIATE_TEST_SUITE_P(Cases,
                         SpeculationEagle3,
                         testing::Values("llama", "gpt-oss"),
                         [](const auto& tested) { return letters_of(tested.param); });

class SpeculationNgram : public testing::TestWithParam<const char*> {};

TEST_P(SpeculationNgram, ChangesNoAnswer) {
  const TemporaryFolder checkpoint;
  ASSERT_TRUE(materialize_checkpoint(golden_folder() + "/" + GetParam(), checkpoint.path()).ok());
  EngineConfig config = crowded_with_drafts(SpeculativeMethod::kNgram, 1);
  config.model.model = checkpoint.path();
  const Totals totals = check_drafts(config, requests_of(num_speculation_requests(), 17));
  EXPECT_GT(totals.num_drafts, 100);
  EXPECT_GT(totals.num_accepted, 20);
}

// Each architecture once; that of the demo model is in model_runner_test.
INSTANTIATE_TEST_SUITE_P(Cases,
                         SpeculationNgram,
                         testing::Values("deepseek-v2",
                                         "deepseek-v3",
                                         "deepseek-v32",
                                         "glm-moe-dsa",
                                         "glm4-moe",
                                         "gpt-oss",
                                         "llama",
                                         "mixtral",
                                         "qwen3",
                                         "qwen3-moe",
                                         "qwen3-next",
                                         "qwen3-next-qsa",
                                         "qwen3.5",
                                         "qwen3.5-moe"),
                         [](const auto& tested) { return letters_of(tested.param); });

// Drafts by a copy of the head in FP8 are other guesses.
TEST(SpeculationDraftHead, InFloat8ChangesNoAnswer) {
  int64_t num_accepted = 0;
  for (const char* name : {"deepseek-v3", "qwen3.5", "llama"}) {
    SCOPED_TRACE(name);
    const bool has_own_head = std::string_view(name) == "llama";
    const TemporaryFolder target, head;
    ASSERT_TRUE(materialize_checkpoint(golden_folder() + "/" + name, target.path()).ok());
    EngineConfig config =
        crowded_with_drafts(has_own_head ? SpeculativeMethod::kEagle3 : SpeculativeMethod::kMtp, 1);
    config.model.model = target.path();
    config.speculative.draft_head_dtype = DraftHeadDType::kFloat8;
    if (has_own_head) {
      ASSERT_NO_FATAL_FAILURE(write_head_of_few_ids(name, head.path()));
      config.speculative.draft_model = head.path();
    }
    const std::vector<int32_t> few = has_own_head ? std::vector{0, 31} : std::vector{30, 31};
    num_accepted +=
        check_drafts(config, requests_of(num_speculation_requests(), 11, few)).num_accepted;
  }
  EXPECT_GT(num_accepted, 0);
}

// Ranks that share the layers, or have some of them each.
TEST(SpeculationRanks, DraftsChangeNoAnswer) {
  if (test_device() != DeviceChoice::kCpu) GTEST_SKIP() << "ranks are threads of the CPU";
  struct Case {
    const char* golden;
    SpeculativeMethod method;
    int32_t tensor, pipeline, context = 1;
  };
  int64_t num_accepted = 0;
  for (const Case& tested : {Case{"deepseek-v3", SpeculativeMethod::kMtp, 2, 1},
                             Case{"qwen3-next", SpeculativeMethod::kMtp, 2, 1},
                             Case{"llama", SpeculativeMethod::kEagle3, 2, 1},
                             Case{"qwen3", SpeculativeMethod::kNgram, 2, 1},
                             Case{"qwen3-next", SpeculativeMethod::kNgram, 1, 2},
                             Case{"qwen3-next", SpeculativeMethod::kMtp, 1, 2},
                             Case{"deepseek-v32", SpeculativeMethod::kMtp, 1, 2, 2},
                             Case{"deepseek-v3", SpeculativeMethod::kMtp, 2, 2},
                             Case{"llama", SpeculativeMethod::kEagle3, 1, 2},
                             Case{"llama", SpeculativeMethod::kEagle3, 2, 2}}) {
    SCOPED_TRACE(
        fmt::format("{} {} {} {}", tested.golden, tested.tensor, tested.pipeline, tested.context));
    const TemporaryFolder target, head;
    const std::string folder = golden_folder() + "/" + tested.golden;
    const bool lacks_layer = folder.ends_with("v32");
    const Status made = lacks_layer ? materialize_with_mtp(folder, target.path())
                                    : materialize_checkpoint(folder, target.path());
    ASSERT_TRUE(made.ok()) << made.message();
    EngineConfig config = crowded_with_drafts(tested.method, 2);
    config.model.model = target.path();
    config.parallel.tensor_parallel_size = tested.tensor;
    config.parallel.pipeline_parallel_size = tested.pipeline;
    config.parallel.prefill_context_parallel_size = tested.context;
    config.device.num_threads = tested.tensor * tested.pipeline;
    if (tested.method == SpeculativeMethod::kEagle3) {
      ASSERT_NO_FATAL_FAILURE(write_head_of_few_ids(tested.golden, head.path()));
      config.speculative.draft_model = head.path();
    }
    std::vector<Request> requests = requests_of(3, 19, {0, 31});
    for (Request& request : requests) request.sampling.max_tokens = 12;
    const std::vector<Answer> expected = answers_alone(requests, config, DeviceChoice::kCpu);
    Engine engine(config, DeviceChoice::kCpu);
    expect_answers(requests, expected, engine.run(requests, [](uint64_t) { return 3; }), 2e-3);
    EXPECT_GT(engine.stats().num_draft_tokens, 5);
    num_accepted += engine.stats().num_accepted_tokens;
  }
  EXPECT_GT(num_accepted, 5);
}

}  // namespace
}  // namespace atom
