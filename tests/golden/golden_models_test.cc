// Every golden case whose architecture is registered, in float32 and bfloat16, under every way of
// scheduling the same prompts.
#include <gtest/gtest.h>

#include <algorithm>

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
              ChoiceReplay* choices)
      : golden_(golden),
        arithmetic_(arithmetic),
        has_group_scales_(has_group_scales(config)),
        choices_(choices) {
    EngineConfig engine;
    engine.model.dtype = arithmetic.dtype;
    engine.model.emulate_quantized_activations = arithmetic.quantized_activations;
    engine.cache.dtype = arithmetic.kv_cache_dtype;
    Result<std::unique_ptr<GoldenRunner>> runner = GoldenRunner::create(folder, engine);
    if (runner.ok()) {
      runner_ = std::move(*runner);
    } else {
      ADD_FAILURE() << runner.status().message();
    }
  }

  bool ok() const { return runner_ != nullptr; }

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
    if (arithmetic_.kv_cache_dtype == DType::kFloat8E4M3) {
      return std::max(kFloat8CacheBound, prompt.bf16_bound());
    }
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
    if (arithmetic_.kv_cache_dtype != DType::kFloat8E4M3) {
      return compare(results, golden_.prompts.size());
    }
    // The bound of an FP8 cache is that of many positions, of which a hit leaves few: these are
    // held to the same prompt's without a hit.
    for (size_t k = 0; k < golden_.prompts.size(); ++k) {
      const double allowed = golden_.prompts[k].bf16_bound();
      for (const auto& [position, row] : results[golden_.prompts.size() + k].logits) {
        if (position >= std::ssize(golden_.prompts[k].ids)) continue;
        EXPECT_LE(relative_error(row, results[k].logits.at(position)), allowed);
      }
    }
  }

  const GoldenCase& golden_;
  const Arithmetic arithmetic_;
  const bool has_group_scales_;
  ChoiceReplay* const choices_;
  std::unique_ptr<GoldenRunner> runner_;
};

class GoldenModels : public testing::TestWithParam<std::string> {};

TEST_P(GoldenModels, LogitsAndGreedyTokens) {
  const Result<GoldenCase> golden = load_golden_case(GetParam());
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  if (!find_architecture(golden->architecture).ok()) {
    GTEST_SKIP() << golden->architecture << " is not registered";
  }
  const TemporaryFolder folder;
  const Status written = materialise_checkpoint(GetParam(), folder.path());
  ASSERT_TRUE(written.ok()) << written.message();
  const Result<ModelConfig> config = load_model_config(folder.path());
  if (config.status().code() == StatusCode::kUnimplemented) {
    GTEST_SKIP() << config.status().message();
  }
  ChoiceReplay choices;
  std::vector<Arithmetic> ways = {
      {DType::kFloat32}, {DType::kBFloat16}, {DType::kBFloat16, false, DType::kFloat8E4M3}};
  if (!golden->prompts.front().logits_act_quant.values.empty()) {
    ways.push_back({DType::kFloat32, true});
  }
  for (const Arithmetic& arithmetic : ways) {
    SCOPED_TRACE(arithmetic.to_string());
    GoldenModel model(*golden, folder.path(), arithmetic, *config, &choices);
    if (model.ok()) model.check_all();
    choices.start_replay();
  }
  EXPECT_LE(choices.share_of_replaced(), kNearTiesShare);
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
