// Steps of a pipeline and prompts that are split over ranks, under random schedules, against a
// rank that computes each request alone.
#include <gtest/gtest.h>

#include <random>

#include "runner/context_rows.h"
#include "runner/runner_harness_test.h"
#include "tests/support/synthetic_checkpoint.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

constexpr size_t kNumSplitRequests = 20;

class SplitRunner : public testing::Test {
 protected:
  void SetUp() override {
    if (test_device() != DeviceChoice::kCpu) GTEST_SKIP() << "ranks are threads of the CPU";
    config_.model.dtype = DType::kFloat32;
    config_.scheduler.max_num_seqs = 12;
    config_.scheduler.max_num_batched_tokens = 48;
    config_.cache.num_blocks = 24;
  }

  void take_golden(const char* name) {
    const Status made = materialize_checkpoint(golden_folder() + "/" + name, checkpoint_.path());
    ASSERT_TRUE(made.ok()) << made.message();
    config_.model.model = checkpoint_.path();
    config_.cache.state_checkpoint_interval = 16;
    ids_ = {.first = 20, .count = 360};  // of a vocabulary of 384
  }

  // A crowd of requests on `parallel` ranks; what it did.
  SchedulerStats check(const ParallelConfig& parallel) {
    std::mt19937 random(7);
    std::vector<Request> requests = random_requests(kNumSplitRequests, random, ids_);
    for (Request& request : requests) request.sampling.allowed_token_ids = allowed_;
    if (expected_.empty()) expected_ = answers_alone(requests, config_, DeviceChoice::kCpu);
    EngineConfig config = config_;
    config.parallel = parallel;
    config.device.num_threads = parallel.ranks_of_copy();
    Engine engine(config, DeviceChoice::kCpu);
    const auto due = [](uint64_t step) { return step / 2 + 6; };
    expect_answers(requests, expected_, engine.run(requests, due), 2e-3);
    num_overlapped_ = engine.num_overlapped();
    num_steps_ = engine.num_steps();
    const SchedulerStats stats = engine.stats();
    EXPECT_GT(stats.num_prefix_hit_tokens, 0);
    EXPECT_GT(stats.num_preemptions, 0);
    EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
    return stats;
  }

  TemporaryFolder checkpoint_;
  EngineConfig config_;
  IdRange ids_;
  std::vector<int32_t> allowed_;
  std::vector<Answer> expected_;
  uint64_t num_steps_ = 0, num_overlapped_ = 0;
};

TEST_F(SplitRunner, StagesHaveStepsOfTheirOwn) {
  for (const int32_t stages : {2, 3}) {
    SCOPED_TRACE(stages);
    check({.pipeline_parallel_size = stages});
    EXPECT_GT(num_overlapped_, num_steps_ / 2);
  }
}

// A stage that does not sample is told how many drafts were right, which says where a state is.
TEST_F(SplitRunner, StagesWithStatesAndDrafts) {
  ASSERT_NO_FATAL_FAILURE(take_golden("qwen3-next"));
  config_.speculative.method = SpeculativeMethod::kNgram;
  config_.speculative.num_tokens = 3;
  config_.speculative.prompt_lookup_min = 1;
  allowed_ = {30, 31};  // so that answers repeat
  const SchedulerStats stats = check({.pipeline_parallel_size = 2});
  EXPECT_GT(stats.num_accepted_tokens, 0);
  EXPECT_LT(stats.num_accepted_tokens, stats.num_draft_tokens);
  EXPECT_GT(stats.num_state_checkpoints, 0);
  EXPECT_GT(num_overlapped_, num_steps_ / 4);
}

TEST_F(SplitRunner, PromptsAreSplit) {
  for (const int32_t size : {2, 3}) {
    SCOPED_TRACE(size);
    check({.prefill_context_parallel_size = size});
  }
  check(
      {.tensor_parallel_size = 2, .pipeline_parallel_size = 2, .prefill_context_parallel_size = 2});
}

// Selected positions of a latent cache, and the positions' own cache.
TEST_F(SplitRunner, PromptsOfSparseAttentionAreSplit) {
  ASSERT_NO_FATAL_FAILURE(take_golden("deepseek-v32"));
  check({.prefill_context_parallel_size = 2});
}

TEST_F(SplitRunner, StatesAreRefusedByName) {
  ASSERT_NO_FATAL_FAILURE(take_golden("qwen3-next"));
  config_.model.max_model_len = kMaxModelLen;
  config_.parallel.prefill_context_parallel_size = 2;
  const ModelConfig model = load_model_config(config_.model.model).value();
  const ResolvedConfig resolved = resolve(config_, model).value();
  const Status refused =
      build_model(resolved, {}, parallel_context(config_.parallel, /*rank=*/1)).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented);
  EXPECT_NE(refused.message().find("--prefill-context-parallel-size 2"), std::string::npos)
      << refused.message();
}

// Every row is one rank's, or all ranks'; a piece from the front has one from behind.
TEST(ContextRows, EveryRowIsComputed) {
  SamplingParams params;
  params.seed = 0;
  const SamplingState state(params, {}, {}, 100);
  RunnerSequence decode{.token_ids = {1, 2, 3}, .block_ids = {3}, .sampling = state};
  RunnerSequence prompt{.token_ids = {1, 2, 3}, .block_ids = {1, 0, 2, 4}, .sampling = state};
  RunnerSequence* sequences[] = {&decode, &prompt};
  SchedulerOutput step;
  ScheduledSequence& first = step.scheduled.emplace_back();
  first.num_computed_tokens = 2;
  first.num_new_tokens = first.num_sampled = 1;
  ScheduledSequence& second = step.scheduled.emplace_back();
  second.num_computed_tokens = 3;
  second.num_new_tokens = 9;
  step.num_tokens = 10;
  ThreadPool pool(1);
  const Stream stream(&pool);
  std::vector<std::vector<std::pair<int32_t, int32_t>>> pieces;  // first token, tokens
  for (int32_t rank = 0; rank < 2; ++rank) {
    ParallelContext parallel;
    parallel.context_parallel_size = 2;
    parallel.context_parallel_rank = rank;
    HostMirror arrays(stream, 30);
    const ContextRows rows(step, sequences, 4, parallel, &arrays);
    ASSERT_NE(rows.split(), nullptr);
    auto& of_rank = pieces.emplace_back();
    for (const ScheduledSequence& piece : rows.step().scheduled) {
      of_rank.emplace_back(piece.num_computed_tokens, piece.num_new_tokens);
    }
    EXPECT_EQ(rows.sequences()[2], &prompt);
    const Tensor& slots = rows.split()->slots;
    const int32_t* values = slots.data<int32_t>();
    EXPECT_EQ(std::vector<int32_t>(values, values + slots.num_elements()),
              (std::vector<int32_t>{7, 0, 9, 10, 11, 1, 2, 3, 8, -1}));
  }
  using Pieces = std::vector<std::pair<int32_t, int32_t>>;
  EXPECT_EQ(pieces[0], (Pieces{{2, 1}, {3, 2}, {9, 3}}));
  EXPECT_EQ(pieces[1], (Pieces{{2, 1}, {5, 2}, {7, 2}}));
}

TEST(ContextRows, FewerTokensThanTheThresholdAreNotCut) {
  SamplingParams params;
  params.seed = 0;
  const SamplingState state(params, {}, {}, 100);
  RunnerSequence prompt{.token_ids = {1, 2, 3}, .block_ids = {1, 0}, .sampling = state};
  RunnerSequence* sequences[] = {&prompt};
  SchedulerOutput step;
  step.scheduled.emplace_back().num_new_tokens = 7;
  step.num_tokens = 7;
  ThreadPool pool(1);
  const Stream stream(&pool);
  ParallelContext parallel;
  parallel.context_parallel_size = 2;
  for (const int32_t threshold : {0, 7, 8}) {
    HostMirror arrays(stream, 30);
    const ContextRows rows(step, sequences, 4, parallel, &arrays, threshold);
    EXPECT_EQ(rows.split() != nullptr, threshold <= 7) << threshold;
  }
}

}  // namespace
}  // namespace atom
