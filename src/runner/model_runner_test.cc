// A runner under random schedules against one that computes each request alone. ATOM_TEST_DEVICE
// =cuda runs the first on the GPU, where steps overlap; the second always computes on the CPU.
#include "runner/runner_harness_test.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "tests/support/synthetic_checkpoint.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

constexpr size_t kNumRequests = 60;
constexpr uint64_t kMinSteps = 200;

SchedulerStats check(const EngineConfig& config, DeviceChoice reference_device, double tolerance) {
  std::mt19937 random(7);
  const std::vector<Request> requests = random_requests(kNumRequests, random);
  const std::vector<Answer> expected = answers_alone(requests, config, reference_device);
  Engine engine(config, test_device());
  const std::vector<Answer> got = engine.run(requests, [](uint64_t step) { return step / 2 + 6; });
  expect_answers(requests, expected, got, tolerance);
  EXPECT_GE(engine.num_steps(), kMinSteps);
  EXPECT_GT(engine.stats().num_prefix_hit_tokens, 0);
  EXPECT_GT(engine.stats().num_preemptions, 0);
  if (test_device() == DeviceChoice::kCuda &&
      config.speculative.method == SpeculativeMethod::kOff) {
    EXPECT_GT(engine.num_overlapped(), kMinSteps / 2);
  }
  return engine.stats();
}

EngineConfig crowded(DType dtype) {
  EngineConfig config;
  config.model.dtype = dtype;
  config.scheduler.max_num_seqs = 12;
  config.scheduler.max_num_batched_tokens = 48;
  config.cache.num_blocks = 24;
  return config;
}

TEST(ModelRunner, RandomBatchesGiveWhatEachRequestGetsAlone) {
  check(crowded(DType::kFloat32), DeviceChoice::kCpu, 2e-3);
}

TEST(ModelRunner, TheSameWithoutRecordedSteps) {
  EngineConfig config = crowded(DType::kFloat32);
  config.device.enable_graphs = false;
  check(config, DeviceChoice::kCpu, 2e-3);
}

EngineConfig drafting(EngineConfig config) {
  config.speculative.method = SpeculativeMethod::kNgram;
  config.speculative.num_tokens = 3;
  config.speculative.prompt_lookup_min = 1;
  return config;
}

TEST(ModelRunner, DraftsChangeNoAnswer) {
  const EngineConfig config = drafting(crowded(DType::kFloat32));
  const SchedulerStats stats = check(config, DeviceChoice::kCpu, 2e-3);
  EXPECT_GT(stats.num_draft_tokens, 200);
  EXPECT_GT(stats.num_accepted_tokens, 20);
  EXPECT_LT(stats.num_accepted_tokens, stats.num_draft_tokens);
}

// gpt-oss, every other layer of which sees 32 tokens and gives back blocks, which others get;
// compared with what each request gets alone where nothing is given back.
TEST(ModelRunner, LayersWithAWindowGiveBackBlocks) {
  const TemporaryFolder checkpoint;
  ASSERT_TRUE(materialize_checkpoint(golden_folder() + "/gpt-oss", checkpoint.path()).ok());
  EngineConfig config = crowded(DType::kFloat32);
  config.model.model = checkpoint.path();
  std::mt19937 random(7);
  const std::vector<Request> requests =
      random_requests(kNumRequests, random, {.first = 20, .count = 360});
  const std::vector<Answer> expected = answers_alone(requests, config, DeviceChoice::kCpu);
  Engine engine(config, test_device());
  EXPECT_GT(engine.memory_plan().window_blocks_per_sequence, 0);
  const auto due = [](uint64_t step) { return step / 2 + 6; };
  expect_answers(requests, expected, engine.run(requests, due), 2e-3);
  EXPECT_EQ(engine.stats().num_free_blocks, engine.stats().num_blocks);
  EXPECT_GT(engine.stats().num_prefix_hit_tokens, 0);
  EXPECT_GT(engine.stats().num_preemptions, 0);
}

// A model with recurrent states: slots, checkpoints 16 tokens apart, preemption.
class ModelRunnerStates : public testing::Test {
 protected:
  void SetUp() override {
    const Status made = materialize_checkpoint(golden_folder() + "/qwen3-next", checkpoint_.path());
    ASSERT_TRUE(made.ok()) << made.message();
    config_ = crowded(DType::kFloat32);
    config_.model.model = checkpoint_.path();
    config_.cache.state_checkpoint_interval = 16;
  }

  // Runs a crowd of requests and compares with what each gets alone.
  SchedulerStats run() {
    constexpr IdRange kIds{.first = 20, .count = 360};  // of a vocabulary of 384
    std::mt19937 random(7);
    std::vector<Request> requests = random_requests(kNumRequests, random, kIds);
    for (Request& request : requests) request.sampling.allowed_token_ids = allowed_;
    const std::vector<Answer> expected = answers_alone(requests, config_, DeviceChoice::kCpu);
    Engine engine(config_, test_device());
    num_slots_ = engine.memory_plan().num_state_slots;
    const auto due = [](uint64_t step) { return step / 2 + 6; };
    expect_answers(requests, expected, engine.run(requests, due), 2e-3);
    num_steps_ = engine.num_steps();
    return engine.stats();
  }

  TemporaryFolder checkpoint_;
  EngineConfig config_;
  std::vector<int32_t> allowed_;
  int32_t num_slots_ = 0;
  uint64_t num_steps_ = 0;
};

TEST_F(ModelRunnerStates, RandomBatchesGiveWhatEachRequestGetsAlone) {
  const SchedulerStats stats = run();
  EXPECT_EQ(num_slots_, 12 + 24);  // of sequences, of checkpoints
  EXPECT_GE(num_steps_, kMinSteps);
  EXPECT_GT(stats.num_prefix_hit_tokens, 0);
  EXPECT_GT(stats.num_preemptions, 0);
  EXPECT_GT(stats.num_state_checkpoints, 0);
  EXPECT_EQ(stats.num_free_state_slots, num_slots_);
}

// A slot for each token that a step may verify.
TEST_F(ModelRunnerStates, DraftsChangeNoAnswer) {
  config_ = drafting(config_);
  allowed_ = {30, 31};  // so that answers repeat
  const SchedulerStats stats = run();
  EXPECT_EQ(num_slots_, 12 * 4 + 24);
  EXPECT_GE(num_steps_, kMinSteps);
  EXPECT_GT(stats.num_draft_tokens, 200);
  EXPECT_GT(stats.num_accepted_tokens, 20);
  EXPECT_GT(stats.num_prefix_hit_tokens, 0);
  EXPECT_GT(stats.num_preemptions, 0);
  EXPECT_EQ(stats.num_free_state_slots, num_slots_);
}

// The other kinds of layers and routers, with drafts: fewer requests where both are computed on the
// CPU.
class ModelRunnerModels : public testing::TestWithParam<const char*> {};

TEST_P(ModelRunnerModels, RandomBatchesGiveWhatEachRequestGetsAlone) {
  const TemporaryFolder checkpoint;
  ASSERT_TRUE(materialize_checkpoint(golden_folder() + "/" + GetParam(), checkpoint.path()).ok());
  EngineConfig config = drafting(crowded(DType::kFloat32));
  config.model.model = checkpoint.path();
  config.cache.state_checkpoint_interval = 16;
  const bool on_gpu = test_device() == DeviceChoice::kCuda;
  std::mt19937 random(7);
  std::vector<Request> requests =
      random_requests(on_gpu ? kNumRequests : 16, random, {.first = 20, .count = 360});
  for (size_t i = 0; i < requests.size(); i += 2) {
    requests[i].sampling.allowed_token_ids = {30, 31};  // so that answers repeat
    requests[i].sampling.logit_bias.clear();
  }
  const std::vector<Answer> expected = answers_alone(requests, config, DeviceChoice::kCpu);
  Engine engine(config, test_device());
  const auto due = [](uint64_t step) { return step / 2 + 6; };
  expect_answers(requests, expected, engine.run(requests, due), 2e-3);
  const SchedulerStats stats = engine.stats();
  if (on_gpu) {
    EXPECT_GE(engine.num_steps(), kMinSteps);
  }
  EXPECT_GT(stats.num_accepted_tokens, 0);
  EXPECT_LT(stats.num_accepted_tokens, stats.num_draft_tokens);
  EXPECT_GT(stats.num_prefix_hit_tokens, 0);
  EXPECT_GT(stats.num_preemptions, 0);
  EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
}

INSTANTIATE_TEST_SUITE_P(Cases,
                         ModelRunnerModels,
                         testing::Values("deepseek-v3",
                                         "deepseek-v32",
                                         "glm-moe-dsa-shared",
                                         "glm4-moe",
                                         "mixtral",
                                         "qwen3-moe",
                                         "qwen3-next-qsa",
                                         "qwen3.5-moe"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::erase_if(name, [](char c) { return c == '-' || c == '.'; });
                           return name;
                         });

TEST_F(ModelRunnerStates, AllRequestsWaitForTheOnlySlot) {
  config_.cache.enable_prefix_caching = false;
  config_.cache.kv_cache_memory = 1;  // less than a second slot
  const SchedulerStats stats = run();
  EXPECT_EQ(num_slots_, 1);
  EXPECT_EQ(stats.num_preemptions, 0);
  EXPECT_EQ(stats.num_free_state_slots, 1);
}

// Spans of a track by name.
std::map<std::string, std::vector<Span>> of_track(const SpanRecording& recording,
                                                  std::string_view track) {
  std::map<std::string, std::vector<Span>> spans;
  for (const Span& span : recording.spans) {
    if (span.track == track) spans[std::string(span.name)].push_back(span);
  }
  return spans;
}

TEST(ModelRunner, TellsARecorderOfItsStepsAndOperators) {
  std::mt19937 random(3);
  std::vector<Request> requests = random_requests(4, random);
  for (Request& request : requests) {
    request.aborts = false;
    request.sampling = {};
    request.sampling.seed = 1;
    request.sampling.max_tokens = 9;
    request.sampling.ignore_eos = true;
  }
  for (const bool records_steps : {false, true}) {
    SCOPED_TRACE(records_steps);
    EngineConfig config = crowded(DType::kFloat32);
    config.device.enable_graphs = records_steps;
    SpanRecorder recorder;
    Engine engine(config, test_device(), &recorder);
    const auto all_at_once = [](uint64_t) { return SIZE_MAX; };
    (void)engine.run(requests, all_at_once);
    recorder.start();
    (void)engine.run(requests, all_at_once);
    const SpanRecording recording = recorder.stop();
    (void)engine.run(requests, all_at_once);

    const bool on_device = test_device() == DeviceChoice::kCuda;
    size_t num_steps = 0;
    size_t num_decodes = 0;
    int64_t last_step = 0;
    Span::Clock::time_point last_end = recording.begin;
    for (const Span& span : recording.spans) {
      if (span.track != (on_device ? "device" : "runner") || span.arguments[0].name == nullptr) {
        continue;
      }
      EXPECT_GT(span.arguments[0].value, last_step);
      last_step = span.arguments[0].value;
      ++num_steps;
      EXPECT_GE(span.begin, last_end);
      last_end = span.end;
      num_decodes += span.name == "decode" ? 1 : 0;
    }
    EXPECT_GE(num_decodes, 8u);
    EXPECT_GE(of_track(recording, "runner")["collect"].size(), num_steps);
    EXPECT_EQ(of_track(recording, "runner")["build inputs"].size(), num_steps);
    auto operators = of_track(recording, "operators");
    const size_t num_layers = load_model_config(demo_model_folder()).value().num_hidden_layers;
    const size_t num_seen = on_device && records_steps ? num_steps - num_decodes : num_steps;
    EXPECT_EQ(operators["attention"].size(), num_layers * num_seen);
    EXPECT_GT(operators["linear"].size(), operators["attention"].size());
    for (const Span& span : operators["linear"]) EXPECT_GT(span.arguments[0].value, 0);
  }
}

TEST(ModelRunner, ToldTimesAddUp) {
  using std::chrono::steady_clock;
  std::mt19937 random(5);
  const std::vector<Request> requests = random_requests(6, random);
  Engine engine(crowded(DType::kFloat32), test_device());
  const auto all_at_once = [](uint64_t) { return SIZE_MAX; };
  const auto begin = steady_clock::now();
  (void)engine.run(requests, all_at_once);
  const size_t num_before = engine.waits().size();
  constexpr auto kPause = std::chrono::milliseconds(50);
  std::this_thread::sleep_for(kPause);
  (void)engine.run(requests, all_at_once);
  const nanoseconds elapsed = steady_clock::now() - begin;

  ASSERT_GT(engine.waits().size(), num_before);
  EXPECT_EQ(engine.waits()[0].count(), 0);
  EXPECT_GE(engine.waits()[num_before], kPause);
  nanoseconds sum{0};
  for (size_t i = 0; i < engine.waits().size(); ++i) {
    EXPECT_GT(engine.durations()[i].count(), 0);
    EXPECT_GE(engine.waits()[i].count(), 0);
    sum += engine.durations()[i] + engine.waits()[i];
  }
  EXPECT_LE(sum, elapsed * 1.01);  // a device has a clock of its own
}

}  // namespace
}  // namespace atom
