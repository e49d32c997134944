// Every golden case whose architecture is registered, in float32 and bfloat16, under every way of
// scheduling the same prompts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <ranges>

#include "tests/golden/choice_replay.h"
#include "tests/golden/codes_replay.h"
#include "tests/golden/compare_logits.h"
#include "tests/golden/golden_parameter.h"
#include "tests/golden/golden_runner.h"
#include "tests/golden/test_device.h"
#include "tests/golden/written_case.h"
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

class GoldenModel {
 public:
  // `choices` of plain float32 are recorded, and replayed in bfloat16.
  GoldenModel(const GoldenCase& golden,
              const std::string& folder,
              const Arithmetic& arithmetic,
              const ModelConfig& config,
              ChoiceReplay* choices,
              const ParallelConfig& parallel = {})
      : golden_(golden), arithmetic_(arithmetic), choices_(choices) {
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
    if (arithmetic.quantized_activations) codes_.emplace(folder, config);
  }

  // Why there is no model to check.
  const Status& status() const { return status_; }

  // What differs between one rank and several.
  void check_ranks() {
    check("in a batch", {});
    check("in a batch of chunks", {.max_num_batched_tokens = 20});
  }

  void check_copies() { check("in a batch of chunks", {.max_num_batched_tokens = 20}); }

  // Every few steps experts go to other ranks.
  void check_moves() {
    check_copies();
    EXPECT_GT(runner_->num_expert_moves(), 0u);
  }

  void check_all() {
    runner_->set_observer(codes_ ? codes_->recorder() : static_cast<StepObserver*>(choices_));
    check("in one piece, alone", {.max_num_seqs = 1});
    // One record is enough; what is replayed, or read as codes, is needed in every way.
    if (arithmetic_.dtype == DType::kFloat32 && !codes_) runner_->set_observer(nullptr);
    check("in chunks of 7", {.max_num_batched_tokens = 7, .max_num_seqs = 1});
    check("token by token", {.max_num_batched_tokens = 1, .max_num_seqs = 1});
    check("in a batch of chunks", {.max_num_batched_tokens = 20});
    if (!codes_) {
      // The reference takes longer than the model.
      check("in a batch", {});
      check("in blocks of one token", {.num_blocks = 8192, .block_size = 1});
      check("in blocks of 48 tokens", {.max_num_batched_tokens = 20, .block_size = 48});
    }
    if (runner_->has_states()) {
      check("with one state slot for all", {.num_state_slots = 1});
    }
    if (runner_->has_window()) check_small_pool();
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
    return kFloat32Bound;
  }

  void check(const std::string& how, const Schedule& schedule) {
    SCOPED_TRACE(how);
    compare(run(requests(), schedule, kNumGreedy), 0);
  }

  std::vector<GoldenResult> run(const std::vector<GoldenRunner::Request>& requests,
                                const Schedule& schedule,
                                int32_t num_tokens) {
    if (codes_) codes_->recorder()->clear();
    return runner_->run(requests, schedule, num_tokens);
  }

  void compare(const std::vector<GoldenResult>& results, size_t first) {
    for (size_t k = 0; k < golden_.prompts.size(); ++k) {
      SCOPED_TRACE("prompt " + std::to_string(k));
      compare_one(golden_.prompts[k], results[first + k], first + k, k);
    }
  }

  void compare_one(const GoldenPrompt& prompt,
                   const GoldenResult& result,
                   size_t sequence,
                   size_t earlier) {
    if (codes_) return codes_->check(prompt, result, sequence, earlier);
    EXPECT_GT(compare_logits(prompt, prompt.logits, result, bound(prompt)), 0);
    if (arithmetic_.dtype != DType::kFloat32) return;
    EXPECT_EQ(greedy_mismatch(prompt, result.output), "");
  }

  // The longest prompt has just room to its end if layers with a window give back what is behind
  // it.
  void check_small_pool() {
    const auto length = [](const GoldenPrompt& prompt) { return prompt.ids.size(); };
    const auto longest = std::ranges::max(golden_.prompts | std::views::transform(length));
    Schedule schedule = {.max_num_batched_tokens = 7, .block_size = 4};
    const auto num_tokens = static_cast<int64_t>(longest) + kNumGreedy;
    schedule.num_blocks = runner_->fewest_blocks(schedule, num_tokens);
    EXPECT_LT(schedule.num_blocks, 2 * num_blocks_for(num_tokens, schedule.block_size));
    check("in a pool without room for what is behind windows", schedule);
    schedule.enable_prefix_caching = true;
    check("in such a pool with its prefixes cached", schedule);
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
    const auto length = static_cast<int64_t>(prompt.ids.size()) + kNumTokens;
    const int32_t num_blocks = runner_->fewest_blocks({}, length);
    const std::vector<GoldenRunner::Request> copies(3, {prompt.ids, 0});
    std::vector<GoldenResult> results = run(copies, {.num_blocks = num_blocks}, kNumTokens);
    for (size_t i = 0; i < results.size(); ++i) {
      results[i].output.resize(kNumGreedy);
      compare_one(prompt, results[i], i, i);
    }
    EXPECT_GT(runner_->stats().num_preemptions, 0);
  }

  void check_prefix_hit() {
    SCOPED_TRACE("with a prefix-cache hit");
    std::vector<GoldenRunner::Request> twice = requests(0);
    for (const GoldenRunner::Request& request : requests(1)) twice.push_back(request);
    const std::vector<GoldenResult> results =
        run(twice, {.enable_prefix_caching = true}, kNumGreedy);
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
  ChoiceReplay* const choices_;
  std::optional<CodesReplay> codes_;  // of quantized activations
  Status status_;
  std::unique_ptr<GoldenRunner> runner_;
};

class GoldenModels : public testing::TestWithParam<std::string> {};

TEST_P(GoldenModels, LogitsAndGreedyTokens) {
  const WrittenCase written(GetParam());
  if (!written.missing().empty()) GTEST_SKIP() << written.missing();
  ASSERT_TRUE(written.status().ok()) << written.status().message();
  ChoiceReplay choices;
  std::vector<Arithmetic> ways = {
      {DType::kFloat32}, {DType::kBFloat16}, {DType::kBFloat16, false, DType::kFloat8E4M3}};
  if (quantizes_activations(written.config()) && ReferenceDecoder::supports(written.config())) {
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

// What cannot be split is refused before weights are loaded, and only that.
void expect_ranks(const WrittenCase& written,
                  const ParallelConfig& parallel,
                  void (GoldenModel::*check)()) {
  GoldenModel model(written.golden(),
                    written.path(),
                    {DType::kFloat32},
                    written.config(),
                    /*choices=*/nullptr,
                    parallel);
  if (model.status().ok()) return (model.*check)();
  const std::string& why = model.status().message();
  EXPECT_EQ(model.status().code(), StatusCode::kUnimplemented) << why;
  // Only of ranks that share the tokens of prompts.
  const bool has_states = why.find("layers of recurrent states") != std::string::npos;
  EXPECT_TRUE(has_states || why.find("less than one") != std::string::npos ||
              why.find("evenly") != std::string::npos ||
              why.find("that share a scale") != std::string::npos)
      << why;
}

// Copies that share their experts: each with half of the prompts, one idle while the other works,
// by every way in which tokens come to experts (ATOM_TEST_TP: also with so many copies).
TEST_P(GoldenModels, CopiesThatShareExpertsComputeTheSame) {
  if (const std::string why = missing_cards(2); !why.empty()) GTEST_SKIP() << why;
  const WrittenCase written(GetParam());
  if (!written.missing().empty()) GTEST_SKIP() << written.missing();
  ASSERT_TRUE(written.status().ok()) << written.status().message();
  if (!written.routes()) GTEST_SKIP() << "no experts";
  using Dispatch = ExpertDispatch;
  const auto copies = [](int tensor, int stages, int data, bool experts, Dispatch dispatch) {
    return ParallelConfig{.tensor_parallel_size = tensor,
                          .pipeline_parallel_size = stages,
                          .data_parallel_size = data,
                          .enable_expert_parallel = experts,
                          .enable_dp_attention = !experts,
                          .expert_dispatch = dispatch};
  };
  std::vector<ParallelConfig> ways = {copies(1, 1, 2, true, Dispatch::kGather),
                                      copies(1, 1, 2, true, Dispatch::kAllToAll),
                                      copies(2, 1, 2, true, Dispatch::kAllToAll),
                                      copies(1, 2, 2, true, Dispatch::kAllToAll),
                                      copies(1, 1, 2, false, Dispatch::kGather)};
  ways.push_back(copies(2, 1, 2, true, Dispatch::kAllToAll));
  ways.back().enable_dp_attention = true;
  if (const char* asked = std::getenv("ATOM_TEST_TP")) {
    ways.push_back(copies(std::atoi(asked), 1, 1, true, Dispatch::kGather));
    ways.back().enable_dp_attention = true;
  }
  for (const ParallelConfig& parallel : ways) {
    SCOPED_TRACE(&parallel - ways.data());
    if (!can_try(parallel)) continue;
    expect_ranks(written, parallel, &GoldenModel::check_copies);
  }
}

// Ranks that have experts whole, some of them twice, and exchange them while they compute.
TEST_P(GoldenModels, ExpertsThatMoveComputeTheSame) {
  if (const std::string why = missing_cards(2); !why.empty()) GTEST_SKIP() << why;
  const WrittenCase written(GetParam());
  if (!written.missing().empty()) GTEST_SKIP() << written.missing();
  ASSERT_TRUE(written.status().ok()) << written.status().message();
  if (!written.routes()) GTEST_SKIP() << "no experts";
  ParallelConfig moving = {.enable_expert_parallel = true};
  moving.eplb.enabled = true;
  moving.eplb.rebalance_interval = 5;
  ParallelConfig of_copies = moving, of_one = moving;
  of_copies.data_parallel_size = 2;
  if (golden_device() == DeviceChoice::kCpu) of_copies.expert_dispatch = ExpertDispatch::kAllToAll;
  of_copies.eplb.num_redundant_experts = 2;
  of_one.tensor_parallel_size = 2;
  for (const ParallelConfig& parallel : {of_copies, of_one}) {
    SCOPED_TRACE(parallel.data_parallel_size);
    expect_ranks(written, parallel, &GoldenModel::check_moves);
  }
}

// Layers split among 2 and 4 ranks (ATOM_TEST_TP: so many), experts in parts and spread, and in two
// stages. What cannot be split is refused before weights are loaded, and only that.
TEST_P(GoldenModels, SeveralRanksComputeTheSame) {
  if (const std::string why = missing_cards(2); !why.empty()) GTEST_SKIP() << why;
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
      {.pipeline_parallel_size = many},
      {.tensor_parallel_size = few, .pipeline_parallel_size = 2},
      {.prefill_context_parallel_size = 2},
      {.tensor_parallel_size = few,
       .pipeline_parallel_size = 2,
       .prefill_context_parallel_size = 2},
  };
  for (const ParallelConfig& parallel : ways) {
    if (parallel.enable_expert_parallel && !written.routes()) continue;
    if (!can_try(parallel)) continue;
    SCOPED_TRACE(fmt::format("{} ranks of {} stages, {} for prompts{}",
                             parallel.tensor_parallel_size,
                             parallel.pipeline_parallel_size,
                             parallel.prefill_context_parallel_size,
                             parallel.enable_expert_parallel ? ", experts spread" : ""));
    expect_ranks(written, parallel, &GoldenModel::check_ranks);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases,
                         GoldenModels,
                         testing::ValuesIn(golden_case_folders()),
                         golden_case_name);

}  // namespace
}  // namespace atom
