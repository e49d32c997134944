// Every golden case whose architecture is registered, in float32 and bfloat16, under every way of
// scheduling the same prompts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "models/registry.h"
#include "tests/golden/golden_runner.h"
#include "tests/support/golden_case.h"
#include "tests/support/synthetic_checkpoint.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

constexpr int32_t kNumGreedy = 24;

// How a case is computed, and what it is held against.
struct Arithmetic {
  DType dtype = DType::kFloat32;
  bool quantized_activations = false;
  DType kv_cache_dtype = dtype;

  std::string to_string() const {
    return fmt::format("{}{}, KV cache in {}",
                       dtype_name(dtype),
                       quantized_activations ? " with quantized activations" : "",
                       dtype_name(kv_cache_dtype));
  }
};

// Compares the golden positions that `result` has logits for, rows of `logits`; returns how many
// there were.
int compare_logits(const GoldenPrompt& prompt,
                   const Matrix& logits,
                   const GoldenResult& result,
                   double bound) {
  std::vector<float> ours;
  std::vector<float> golden;
  int num_compared = 0;
  for (size_t i = 0; i < prompt.positions.size(); ++i) {
    const auto found = result.logits.find(prompt.positions[i]);
    if (found == result.logits.end()) continue;
    ours.insert(ours.end(), found->second.begin(), found->second.end());
    const std::span<const float> row = logits.row(static_cast<int64_t>(i));
    golden.insert(golden.end(), row.begin(), row.end());
    ++num_compared;
  }
  if (num_compared > 0) {
    EXPECT_LE(relative_error(ours, golden), bound);
  }
  return num_compared;
}

// Of activations.
bool has_group_scales(const ModelConfig& config) {
  const std::vector<QuantConfig::Group>& groups = config.quantization.groups;
  return !groups.empty() && groups.front().scheme.activations == QuantType::kPer1x128;
}

class GoldenModel {
 public:
  // `choices` of plain float32 are recorded, and replayed in bfloat16.
  GoldenModel(const GoldenCase& golden,
              const std::string& folder,
              const Arithmetic& arithmetic,
              const ModelConfig& config,
              ChoiceReplay* choices,
              const ParallelConfig& parallel = {})
      : golden_(golden),
        arithmetic_(arithmetic),
        has_group_scales_(has_group_scales(config)),
        choices_(choices) {
    EngineConfig engine;
    engine.model.dtype = arithmetic.dtype;
    engine.model.emulate_quantized_activations = arithmetic.quantized_activations;
    engine.cache.dtype = arithmetic.kv_cache_dtype;
    engine.parallel = parallel;
    Result<std::unique_ptr<GoldenRunner>> runner = GoldenRunner::create(folder, engine);
    if (runner.ok()) {
      runner_ = std::move(*runner);
    } else {
      status_ = runner.status();
    }
  }

  // Why there is no model to check.
  const Status& status() const { return status_; }

  // What differs between one rank and several.
  void check_ranks() {
    check("in a batch", {});
    check("in a batch of chunks", {.max_num_batched_tokens = 20});
  }

  void check_all() {
    const bool is_float32 = arithmetic_.dtype == DType::kFloat32;
    runner_->set_choices(arithmetic_.quantized_activations ? nullptr : choices_);
    check("in one piece, alone", {.max_num_seqs = 1});
    if (is_float32) runner_->set_choices(nullptr);
    check("in chunks of 7", {.max_num_batched_tokens = 7, .max_num_seqs = 1});
    check("token by token", {.max_num_batched_tokens = 1, .max_num_seqs = 1});
    check("in a batch", {});
    check("in a batch of chunks", {.max_num_batched_tokens = 20});
    check("in blocks of one token", {.num_blocks = 8192, .block_size = 1});
    check("in blocks of 48 tokens", {.max_num_batched_tokens = 20, .block_size = 48});
    if (runner_->has_states()) {
      check("with one state slot for all", {.num_state_slots = 1});
    }
    check_preemption();
    check_prefix_hit();
  }

 private:
  std::vector<GoldenRunner::Request> requests(int wave = 0) const {
    std::vector<GoldenRunner::Request> result;
    for (const GoldenPrompt& prompt : golden_.prompts) result.push_back({prompt.ids, wave});
    return result;
  }

  double bound(const GoldenPrompt& prompt) const {
    if (arithmetic_.kv_cache_dtype == DType::kFloat8E4M3) return kFloat8CacheBound;
    if (arithmetic_.dtype != DType::kFloat32) return prompt.bf16_bound();
    if (!arithmetic_.quantized_activations) return kFloat32Bound;
    if (has_group_scales_) {
      const double unquantized =
          relative_error(prompt.logits.values, prompt.logits_act_quant.values);
      return prompt.ids.size() > kNumDecidedTokensOfGroups ? kFlippedGroupsShare * unquantized
                                                           : kActQuantBound;
    }
    return prompt.ids.size() > kNumDecidedTokens ? kFlippedCodesBound : kActQuantBound;
  }

  void check(const std::string& how, const Schedule& schedule) {
    SCOPED_TRACE(how);
    compare(runner_->run(requests(), schedule, kNumGreedy), 0);
  }

  void compare(const std::vector<GoldenResult>& results, size_t first) {
    for (size_t k = 0; k < golden_.prompts.size(); ++k) {
      SCOPED_TRACE("prompt " + std::to_string(k));
      compare_one(golden_.prompts[k], results[first + k]);
    }
  }

  void compare_one(const GoldenPrompt& prompt, const GoldenResult& result) {
    const Matrix& logits =
        arithmetic_.quantized_activations ? prompt.logits_act_quant : prompt.logits;
    EXPECT_GT(compare_logits(prompt, logits, result, bound(prompt)), 0);
    // The golden text is that of unquantized activations.
    if (arithmetic_.dtype != DType::kFloat32 || arithmetic_.quantized_activations) return;
    EXPECT_EQ(greedy_mismatch(prompt, result.output), "");
  }

  // Three copies of the shortest prompt in a pool that just holds one to its end: the later ones
  // give way in the middle of their answers, and come back.
  void check_preemption() {
    SCOPED_TRACE("after preemption");
    const GoldenPrompt& prompt = *std::min_element(
        golden_.prompts.begin(), golden_.prompts.end(), [](const auto& a, const auto& b) {
          return a.ids.size() < b.ids.size();
        });
    constexpr int32_t kNumTokens = 64;
    const auto num_blocks = static_cast<int32_t>((prompt.ids.size() + kNumTokens + 15) / 16);
    const std::vector<GoldenRunner::Request> copies(3, {prompt.ids, 0});
    for (GoldenResult& result : runner_->run(copies, {.num_blocks = num_blocks}, kNumTokens)) {
      result.output.resize(kNumGreedy);
      compare_one(prompt, result);
    }
    EXPECT_GT(runner_->stats().num_preemptions, 0);
  }

  void check_prefix_hit() {
    SCOPED_TRACE("with a prefix-cache hit");
    std::vector<GoldenRunner::Request> twice = requests(0);
    for (const GoldenRunner::Request& request : requests(1)) twice.push_back(request);
    const std::vector<GoldenResult> results =
        runner_->run(twice, {.enable_prefix_caching = true}, kNumGreedy);
    EXPECT_GT(runner_->stats().num_prefix_hit_tokens, 0);
    compare(results, golden_.prompts.size());
  }

  const GoldenCase& golden_;
  const Arithmetic arithmetic_;
  const bool has_group_scales_;
  ChoiceReplay* const choices_;
  Status status_;
  std::unique_ptr<GoldenRunner> runner_;
};

class GoldenModels : public testing::TestWithParam<std::string> {};

// A case whose architecture and configuration this build computes, as a checkpoint in a folder.
class WrittenCase {
 public:
  explicit WrittenCase(const std::string& case_folder) : golden_(load_golden_case(case_folder)) {
    if (golden_.ok()) written_ = materialise_checkpoint(case_folder, folder_.path());
    if (written_.ok()) config_ = load_model_config(folder_.path());
  }

  // Why it is skipped.
  std::string missing() const {
    if (!find_architecture(golden_->architecture).ok()) {
      return golden_->architecture + " is not registered";
    }
    return config_.status().code() == StatusCode::kUnimplemented ? config_.status().message() : "";
  }
  Status status() const {
    return !golden_.ok() ? golden_.status() : !written_.ok() ? written_ : config_.status();
  }

  const GoldenCase& golden() const { return *golden_; }
  const ModelConfig& config() const { return *config_; }
  std::string path() const { return folder_.path(); }
  bool routes() const { return config_->extension().has("num_experts_per_tok"); }

 private:
  TemporaryFolder folder_;
  Result<GoldenCase> golden_;
  Status written_;
  Result<ModelConfig> config_ = not_found("no checkpoint");
};

TEST_P(GoldenModels, LogitsAndGreedyTokens) {
  const WrittenCase written(GetParam());
  if (!written.missing().empty()) GTEST_SKIP() << written.missing();
  ASSERT_TRUE(written.status().ok()) << written.status().message();
  ChoiceReplay choices;
  std::vector<Arithmetic> ways = {
      {DType::kFloat32}, {DType::kBFloat16}, {DType::kBFloat16, false, DType::kFloat8E4M3}};
  if (!written.golden().prompts.front().logits_act_quant.values.empty()) {
    ways.push_back({DType::kFloat32, true});
  }
  for (const Arithmetic& arithmetic : ways) {
    SCOPED_TRACE(arithmetic.to_string());
    GoldenModel model(written.golden(), written.path(), arithmetic, written.config(), &choices);
    ASSERT_TRUE(model.status().ok()) << model.status().message();
    model.check_all();
    choices.start_replay();
  }
  EXPECT_LE(choices.share_of_replaced(), kNearTiesShare);
}

// Layers split among 2 and 4 ranks (ATOM_TEST_TP: so many), experts in parts and spread, and in two
// stages. What cannot be split is refused before weights are loaded, and only that.
TEST_P(GoldenModels, SeveralRanksComputeTheSame) {
  const WrittenCase written(GetParam());
  if (!written.missing().empty()) GTEST_SKIP() << written.missing();
  ASSERT_TRUE(written.status().ok()) << written.status().message();
  const char* asked = std::getenv("ATOM_TEST_TP");
  const int few = asked == nullptr ? 2 : std::atoi(asked), many = asked == nullptr ? 4 : few;
  const ParallelConfig ways[] = {
      {.tensor_parallel_size = few},
      {.tensor_parallel_size = many},
      {.tensor_parallel_size = few, .enable_expert_parallel = true},
      {.tensor_parallel_size = many, .enable_expert_parallel = true},
      {.pipeline_parallel_size = 2},
      {.tensor_parallel_size = few, .pipeline_parallel_size = 2},
  };
  for (const ParallelConfig& parallel : ways) {
    if (parallel.enable_expert_parallel && !written.routes()) continue;
    SCOPED_TRACE(fmt::format("{} ranks of {} stages{}",
                             parallel.tensor_parallel_size,
                             parallel.pipeline_parallel_size,
                             parallel.enable_expert_parallel ? ", experts spread" : ""));
    GoldenModel model(written.golden(),
                      written.path(),
                      {DType::kFloat32},
                      written.config(),
                      /*choices=*/nullptr,
                      parallel);
    if (model.status().ok()) {
      model.check_ranks();
    } else {
      const std::string& why = model.status().message();
      EXPECT_EQ(model.status().code(), StatusCode::kUnimplemented) << why;
      EXPECT_TRUE(why.find("evenly") != std::string::npos ||
                  why.find("that share a scale") != std::string::npos)
          << why;
    }
  }
}

std::string case_name(const testing::TestParamInfo<std::string>& param) {
  std::string name = param.param.substr(param.param.find_last_of('/') + 1);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenModels, testing::ValuesIn(golden_case_folders()), case_name);

}  // namespace
}  // namespace atom
