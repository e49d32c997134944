// Answers with drafts are those without: random requests in a crowd that shares prefixes, is cut
// into chunks and preempted, against each request alone without drafts on the same device.
// ATOM_TEST_DEVICE=cuda is the GPU, where the rows of a step have a fixed order of sums.
// ATOM_TEST_SPECULATION_REQUESTS: requests of each case, at least 16.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "runner/runner_harness_test.h"
#include "tests/support/mtp_case.h"
#include "tests/support/synthetic_checkpoint.h"

namespace atom {
namespace {

constexpr IdRange kGoldenIds{.first = 20, .count = 360};  // of a vocabulary of 384

size_t num_requests() {
  const char* text = std::getenv("ATOM_TEST_SPECULATION_REQUESTS");
  return text == nullptr ? 16 : std::max<size_t>(16, std::stoul(text));
}

EngineConfig crowded_with_drafts(SpeculativeMethod method, int32_t num_tokens) {
  EngineConfig config;
  config.model.dtype = DType::kFloat32;
  config.device.deterministic = test_device() == DeviceChoice::kCuda;
  config.scheduler.max_num_seqs = 12;
  config.scheduler.max_num_batched_tokens = 60;
  config.cache.num_blocks = 26;
  config.cache.state_checkpoint_interval = 16;
  config.speculative.method = method;
  config.speculative.num_tokens = num_tokens;
  config.speculative.prompt_lookup_min = 1;
  return config;
}

// Some of them choose among few tokens, so that answers repeat.
std::vector<Request> requests_of(size_t count,
                                 uint32_t seed,
                                 const std::vector<int32_t>& few = {30, 31}) {
  std::mt19937 random(seed);
  std::vector<Request> requests = random_requests(count, random, kGoldenIds);
  for (size_t i = 0; i < requests.size(); i += 2) {
    requests[i].sampling.allowed_token_ids = few;
    requests[i].sampling.logit_bias.clear();
  }
  return requests;
}

struct Totals {
  int64_t num_drafts = 0;
  int64_t num_accepted = 0;
};

// With 1, 2 and 3 drafts.
Totals check(EngineConfig config, const std::vector<Request>& requests) {
  const std::vector<Answer> expected = answers_alone(requests, config, test_device());
  Totals totals;
  for (const int32_t num_tokens : {1, 2, 3}) {
    SCOPED_TRACE(num_tokens);
    config.speculative.num_tokens = num_tokens;
    Engine engine(config, test_device());
    const auto due = [](uint64_t step) { return step / 2 + 6; };
    expect_answers(requests, expected, engine.run(requests, due), 2e-3);
    const SchedulerStats stats = engine.stats();
    EXPECT_GT(stats.num_draft_tokens, 0);
    EXPECT_EQ(stats.num_accepted_tokens > 0, stats.num_accepted_at[0] > 0);
    EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
    EXPECT_EQ(stats.num_free_state_slots, stats.num_state_slots);
    totals.num_drafts += stats.num_draft_tokens;
    totals.num_accepted += stats.num_accepted_tokens;
  }
  return totals;
}

std::string letters_of(std::string name) {
  std::erase_if(name, [](char c) { return c == '-' || c == '.'; });
  return name;
}

class SpeculationMtp : public testing::TestWithParam<const char*> {
 protected:
  // The case's checkpoint, with draft layers.
  void materialise() {
    const std::string folder = golden_folder() + "/" + GetParam();
    const std::string name = GetParam();
    const bool has_layer =
        name.find("v32") == std::string::npos && !name.starts_with("glm-moe-dsa");
    const Status made = has_layer ? materialise_checkpoint(folder, checkpoint_.path())
                                  : materialise_with_mtp(folder, checkpoint_.path());
    ASSERT_TRUE(made.ok()) << made.message();
  }

  TemporaryFolder checkpoint_;
};

TEST_P(SpeculationMtp, ChangesNoAnswer) {
  ASSERT_NO_FATAL_FAILURE(materialise());
  EngineConfig config = crowded_with_drafts(SpeculativeMethod::kMtp, 1);
  config.model.model = checkpoint_.path();
  const Totals totals = check(config, requests_of(num_requests(), 11));
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

nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

void write_head(const nlohmann::json& config,
                const nlohmann::json& checkpoint,
                const std::string& folder) {
  const TemporaryFolder described;
  std::ofstream(described.file("config.json")) << config.dump();
  std::ofstream(described.file("checkpoint.json")) << checkpoint.dump();
  const Status made = materialise_checkpoint(described.path(), folder);
  ASSERT_TRUE(made.ok()) << made.message();
}

// A head of tests/data/eagle3 that chooses among the tokens 0 and 31, so that it is often right
// where the answer does, too.
void write_head_of_few_ids(const std::string& name, const std::string& folder) {
  const std::string from = golden_folder() + "/../eagle3/" + name;
  nlohmann::json config = read_json(from + "/config.json");
  nlohmann::json checkpoint = read_json(from + "/checkpoint.json");
  nlohmann::json& tensors = checkpoint["tensors"];
  config["draft_vocab_size"] = 2;
  tensors["lm_head.weight"]["shape"] = {2, config["hidden_size"]};
  tensors["d2t"] = {
      {"dtype", "int64"}, {"shape", {2}}, {"gen", {{"kind", "multiples"}, {"step", 30}}}};
  write_head(config, checkpoint, folder);
}

class SpeculationEagle3 : public testing::TestWithParam<const char*> {};

TEST_P(SpeculationEagle3, ChangesNoAnswer) {
  const std::string name = GetParam();
  const TemporaryFolder target, head;
  ASSERT_TRUE(materialise_checkpoint(golden_folder() + "/" + name, target.path()).ok());
  ASSERT_NO_FATAL_FAILURE(write_head_of_few_ids(name, head.path()));
  EngineConfig config = crowded_with_drafts(SpeculativeMethod::kEagle3, 1);
  config.model.model = target.path();
  config.speculative.draft_model = head.path();
  const Totals totals = check(config, requests_of(num_requests(), 13, {0, 31}));
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
  ASSERT_TRUE(materialise_checkpoint(golden_folder() + "/" + GetParam(), checkpoint.path()).ok());
  EngineConfig config = crowded_with_drafts(SpeculativeMethod::kNgram, 1);
  config.model.model = checkpoint.path();
  const Totals totals = check(config, requests_of(num_requests(), 17));
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
  for (const char* name : {"deepseek-v3", "qwen3.5", "llama"}) {
    SCOPED_TRACE(name);
    const bool has_own_head = std::string_view(name) == "llama";
    const TemporaryFolder target, head;
    ASSERT_TRUE(materialise_checkpoint(golden_folder() + "/" + name, target.path()).ok());
    EngineConfig config =
        crowded_with_drafts(has_own_head ? SpeculativeMethod::kEagle3 : SpeculativeMethod::kMtp, 1);
    config.model.model = target.path();
    config.speculative.draft_head_dtype = DraftHeadDType::kFloat8;
    if (has_own_head) {
      ASSERT_NO_FATAL_FAILURE(write_head_of_few_ids(name, head.path()));
      config.speculative.draft_model = head.path();
    }
    EXPECT_GT(check(config, requests_of(num_requests(), 23, {0, 31})).num_accepted, 0);
  }
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
    const Status made = lacks_layer ? materialise_with_mtp(folder, target.path())
                                    : materialise_checkpoint(folder, target.path());
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

// tldr-mtp-10m, whose draft layer was trained, on the questions of its oracle's answers.
class SpeculationTrained : public testing::Test {
 protected:
  void SetUp() override {
    const std::optional<std::string> shared = shared_folder();
    if (!shared) GTEST_SKIP() << "no folder beside the project";
    config_ = crowded_with_drafts(SpeculativeMethod::kMtp, 3);
    config_.model.model = *shared + "/models/tldr-mtp-10m";
    config_.cache.num_blocks = 400;
    const std::string answers = config_.model.model + "/golden_text.json";
    if (!std::ifstream(answers)) GTEST_SKIP() << "no tldr-mtp-10m";
    questions_ = read_json(answers).at("float32");
  }

  // Each share is the reference's but for two points.
  void expect_acceptance();

  EngineConfig config_;
  nlohmann::json questions_;
};

TEST_F(SpeculationTrained, ChangesNoAnswer) {
  std::mt19937 random(12);
  config_.cache.num_blocks = 26;
  const std::vector<Request> requests = random_requests(24, random);
  EXPECT_GT(check(config_, requests).num_accepted, 50);
}

// The counts are those of the reference's drafts on a walk through the oracle's answers
// (tests/golden/mtp_reference.py).
TEST_F(SpeculationTrained, AcceptanceIsTheReferences) {
  expect_acceptance();
}

TEST_F(SpeculationTrained, AcceptanceByAnFp8HeadIsTheReferences) {
  config_.speculative.draft_head_dtype = DraftHeadDType::kFloat8;
  expect_acceptance();
}

// Of verifications, which begin behind what the one before accepted.
void SpeculationTrained::expect_acceptance() {
  std::vector<Request> requests;
  for (const nlohmann::json& question : questions_) {
    Request& request = requests.emplace_back();
    request.prompt = question.at("prompt_ids").get<std::vector<int32_t>>();
    request.sampling.temperature = 0;
    request.sampling.seed = 1;
    request.sampling.max_tokens = static_cast<int32_t>(question.at("output_ids").size());
    request.sampling.ignore_eos = true;
  }
  Engine engine(config_, test_device());
  const std::vector<Answer> answers = engine.run(requests, [](uint64_t) { return SIZE_MAX; });
  size_t num_same = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    const std::vector<int32_t> expected = questions_[i].at("output_ids");
    num_same += answers[i].token_ids == expected ? 1 : 0;
  }
  EXPECT_GE(num_same, answers.size() - 2);  // of near ties
  const SchedulerStats stats = engine.stats();
  const auto count = static_cast<double>(stats.num_verifications);
  const double expected[] = {273.0 / 347, 150.0 / 347, 86.0 / 347};
  for (size_t i = 0; i < 3; ++i) {
    const double share = static_cast<double>(stats.num_accepted_at[i]) / count;
    EXPECT_NEAR(share, expected[i], 0.02) << i;
  }
}

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

// An EAGLE-3 head whose description was changed.
class SpeculationBadHead : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(materialise_checkpoint(golden_folder() + "/llama", target_.path()).ok());
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
