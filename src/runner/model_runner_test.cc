// A runner under random schedules against one that computes each request alone. ATOM_TEST_DEVICE
// =cuda runs the first on the GPU, where steps overlap; the second always computes on the CPU.
#include "runner/model_runner.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <random>
#include <string_view>
#include <thread>

#include "models/registry.h"
#include "scheduler/scheduler.h"
#include "tests/support/synthetic_checkpoint.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

using std::chrono::nanoseconds;

constexpr int32_t kMaxModelLen = 256;

DeviceChoice test_device() {
  const char* device = std::getenv("ATOM_TEST_DEVICE");
  return device != nullptr && std::string_view(device) == "cuda" ? DeviceChoice::kCuda
                                                                 : DeviceChoice::kCpu;
}

struct Request {
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  bool aborts = false;  // once it has a token
};

// Token ids that prompts are made of.
struct IdRange {
  int32_t first = 100;
  int32_t count = 4000;

  int32_t draw(std::mt19937& random) const {
    return first + static_cast<int32_t>(random() % static_cast<uint32_t>(count));
  }
};

struct Answer {
  std::vector<int32_t> token_ids;
  std::vector<TokenLogprobs> logprobs;
  std::vector<TokenLogprobs> prompt_logprobs;
  std::string error;
  bool finished = false;
};

// Scheduler and runner, as an engine core couples them.
class Engine {
 public:
  Engine(const EngineConfig& engine, DeviceChoice device, SpanRecorder* recorder = nullptr) {
    EngineConfig config = engine;
    if (config.model.model.empty()) config.model.model = demo_model_folder();
    config.model.max_model_len = kMaxModelLen;
    config.device.device = device;
    const ModelConfig model = load_model_config(config.model.model).value();
    const ResolvedConfig resolved = resolve(config, model).value();
    runner_ = ModelRunner::create(resolved, model.vocab_size, nullptr, recorder).value();
    SchedulerConfig scheduler = resolved.scheduler;
    scheduler.num_blocks = runner_->memory_plan().num_blocks;
    scheduler.num_state_slots = runner_->memory_plan().num_state_slots;
    scheduler_ = std::make_unique<Scheduler>(scheduler, model.eos_token_ids);
    num_allocations_ = runner_->num_device_allocations();
  }

  // `due` says how many requests have arrived by a step.
  std::vector<Answer> run(const std::vector<Request>& requests,
                          const std::function<size_t(uint64_t step)>& due) {
    answers_.assign(requests.size(), {});
    size_t num_added = 0;
    while (num_added < requests.size() || scheduler_->has_work()) {
      for (; num_added < std::min(requests.size(), due(num_steps_)); ++num_added) {
        const Request& request = requests[num_added];
        CHECK(scheduler_->add(first_id_ + num_added, request.prompt, request.sampling).ok());
      }
      submit();
      if (steps_.empty()) {
        ++num_steps_;
      } else {
        collect(requests);
      }
    }
    first_id_ += requests.size();
    EXPECT_EQ(runner_->num_device_allocations(), num_allocations_);
    return std::move(answers_);
  }

  uint64_t num_steps() const { return num_steps_; }
  uint64_t num_overlapped() const { return num_overlapped_; }
  SchedulerStats stats() const { return scheduler_->stats(); }
  const MemoryPlan& memory_plan() const { return runner_->memory_plan(); }
  // Of the steps that executed something.
  const std::vector<nanoseconds>& durations() const { return durations_; }
  const std::vector<nanoseconds>& waits() const { return waits_; }

 private:
  void submit() {
    while (scheduler_->can_schedule() && runner_->can_submit()) {
      SchedulerOutput step = scheduler_->schedule();
      if (step.empty()) return;
      num_overlapped_ += runner_->has_steps() ? 1 : 0;
      runner_->submit(step);
      steps_.push_back(std::move(step));
    }
  }

  void collect(const std::vector<Request>& requests) {
    ModelRunner::Collected collected = runner_->collect();
    if (!steps_.front().scheduled.empty()) {
      durations_.push_back(collected.duration);
      waits_.push_back(collected.wait);
    }
    for (SequenceUpdate& update :
         scheduler_->postprocess(steps_.front(), std::move(collected.output))) {
      Answer& answer = answers_[update.id - first_id_];
      append(answer.token_ids, update.token_ids);
      append(answer.logprobs, update.logprobs);
      append(answer.prompt_logprobs, update.prompt_logprobs);
      answer.error += update.error;
      answer.finished = update.finish_reason != FinishReason::kNone;
      const Request& request = requests[update.id - first_id_];
      if (request.aborts && !answer.finished && !answer.token_ids.empty()) {
        scheduler_->abort(update.id);
      }
    }
    steps_.pop_front();
    ++num_steps_;
  }

  template <typename T>
  static void append(std::vector<T>& to, const std::vector<T>& from) {
    to.insert(to.end(), from.begin(), from.end());
  }

  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<Scheduler> scheduler_;
  std::deque<SchedulerOutput> steps_;
  std::vector<nanoseconds> durations_, waits_;
  std::vector<Answer> answers_;
  SequenceId first_id_ = 1;
  uint64_t num_steps_ = 0;
  uint64_t num_overlapped_ = 0;
  int64_t num_allocations_ = 0;
};

SamplingParams random_sampling(std::mt19937& random) {
  SamplingParams params;
  params.seed = random();
  params.max_tokens = 1 + static_cast<int32_t>(random() % 64);
  params.temperature = random() % 2 == 0 ? 0.0f : 0.9f;
  if (random() % 4 == 0) params.top_k = 20;
  if (random() % 4 == 0) params.top_p = 0.9f;
  if (random() % 4 == 0) params.min_p = 0.02f;
  if (random() % 3 == 0) params.repetition_penalty = 1.3f;
  if (random() % 3 == 0) params.frequency_penalty = 0.5f;
  if (random() % 4 == 0) params.logit_bias = {{20, 4.0f}, {15, -100.0f}};
  if (random() % 4 == 0) params.min_tokens = std::min(params.max_tokens, 10);
  params.ignore_eos = random() % 2 == 0;
  if (random() % 3 == 0) params.logprobs = static_cast<int32_t>(random() % 6);
  if (random() % 8 == 0) params.prompt_logprobs = 2;
  return params;
}

// Prompts that share beginnings, so that later ones find blocks of earlier ones.
std::vector<Request> random_requests(size_t count, std::mt19937& random, IdRange ids = {}) {
  std::vector<std::vector<int32_t>> stems(4, std::vector<int32_t>(100));
  for (std::vector<int32_t>& stem : stems) {
    for (int32_t& id : stem) id = ids.draw(random);
  }
  std::vector<Request> requests(count);
  for (Request& request : requests) {
    const std::vector<int32_t>& stem = stems[random() % stems.size()];
    request.prompt.assign(stem.begin(), stem.begin() + static_cast<int>(1 + random() % 99));
    request.prompt.push_back(ids.draw(random));
    request.sampling = random_sampling(random);
    request.aborts = random() % 10 == 0;
  }
  return requests;
}

void expect_same(const std::vector<TokenLogprobs>& expected,
                 const std::vector<TokenLogprobs>& got,
                 size_t count,
                 double tolerance) {
  ASSERT_GE(got.size(), count);
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(got[i].size(), expected[i].size());
    for (size_t k = 0; k < got[i].size(); ++k) {
      EXPECT_NEAR(got[i][k].logprob, expected[i][k].logprob, tolerance);
    }
  }
}

constexpr size_t kNumRequests = 60;
constexpr uint64_t kMinSteps = 200;

// What each request gets when nothing else runs and nothing is remembered.
std::vector<Answer> answers_alone(const std::vector<Request>& requests,
                                  const EngineConfig& config,
                                  DeviceChoice device) {
  EngineConfig alone;
  alone.model = config.model;
  alone.cache.dtype = config.cache.dtype;
  alone.device = config.device;
  alone.scheduler.max_num_seqs = 1;
  alone.cache.enable_prefix_caching = false;
  return Engine(alone, device).run(requests, [](uint64_t) { return SIZE_MAX; });
}

// `tolerance`: of log-probabilities.
void expect_answers(const std::vector<Request>& requests,
                    const std::vector<Answer>& expected,
                    const std::vector<Answer>& got,
                    double tolerance) {
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(fmt::format("request {}", i));
    ASSERT_EQ(got[i].error, "");
    const size_t count = got[i].token_ids.size();
    if (requests[i].aborts) {
      ASSERT_GE(count, 1u);
      ASSERT_LE(count, static_cast<size_t>(requests[i].sampling.max_tokens));
    }
    const size_t common = std::min(count, expected[i].token_ids.size());
    if (!requests[i].aborts) {
      EXPECT_EQ(count, expected[i].token_ids.size());
    }
    const std::span ours = std::span(got[i].token_ids).first(common);
    const std::span theirs = std::span(expected[i].token_ids).first(common);
    EXPECT_TRUE(std::ranges::equal(ours, theirs))
        << fmt::format("{}\n{}", fmt::join(ours, " "), fmt::join(theirs, " "));
    if (requests[i].sampling.logprobs) {
      expect_same(expected[i].logprobs, got[i].logprobs, common, tolerance);
    }
    if (requests[i].sampling.prompt_logprobs) {
      const size_t num_scored = requests[i].prompt.size() - 1;
      expect_same(expected[i].prompt_logprobs, got[i].prompt_logprobs, num_scored, tolerance);
    }
  }
}

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
  if (test_device() == DeviceChoice::kCuda) {
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

// A model with recurrent states: slots, checkpoints 16 tokens apart, preemption.
class ModelRunnerStates : public testing::Test {
 protected:
  void SetUp() override {
    const Status made = materialise_checkpoint(golden_folder() + "/qwen3-next", checkpoint_.path());
    ASSERT_TRUE(made.ok()) << made.message();
    config_ = crowded(DType::kFloat32);
    config_.model.model = checkpoint_.path();
    config_.cache.state_checkpoint_interval = 16;
  }

  // Runs a crowd of requests and compares with what each gets alone.
  SchedulerStats run() {
    constexpr IdRange kIds{.first = 20, .count = 360};  // of a vocabulary of 384
    std::mt19937 random(7);
    std::vector<Request> requests = random_requests(kNumRequests / 2, random, kIds);
    for (Request& request : requests) request.sampling.allowed_token_ids = allowed_;
    const std::vector<Answer> expected = answers_alone(requests, config_, DeviceChoice::kCpu);
    Engine engine(config_, test_device());
    num_slots_ = engine.memory_plan().num_state_slots;
    const auto due = [](uint64_t step) { return step / 2 + 6; };
    expect_answers(requests, expected, engine.run(requests, due), 2e-3);
    return engine.stats();
  }

  TemporaryFolder checkpoint_;
  EngineConfig config_;
  std::vector<int32_t> allowed_;
  int32_t num_slots_ = 0;
};

TEST_F(ModelRunnerStates, RandomBatchesGiveWhatEachRequestGetsAlone) {
  const SchedulerStats stats = run();
  EXPECT_EQ(num_slots_, 12 + 24);  // of sequences, of checkpoints
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
  EXPECT_GT(stats.num_draft_tokens, 200);
  EXPECT_GT(stats.num_accepted_tokens, 20);
  EXPECT_GT(stats.num_prefix_hit_tokens, 0);
  EXPECT_GT(stats.num_preemptions, 0);
  EXPECT_EQ(stats.num_free_state_slots, num_slots_);
}

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

struct Crowd {
  int32_t max_num_seqs;
  int32_t max_num_batched_tokens;
  int32_t num_blocks;
};

// Every way in which steps can be cut, on the same requests: crowds of all sizes, prompts in pieces
// of a few tokens and whole, with hits of the prefix cache, with preemptions and without.
void check_deterministic(EngineConfig config) {
  config.device.deterministic = true;
  std::vector<Crowd> crowds = {{12, 48, 24}, {3, 5, 64}, {40, 1000, 90}, {200, 2000, 2000}};
  size_t num_requests = 200;
  if (test_device() == DeviceChoice::kCpu) {
    crowds = {{12, 48, 17}, {3, 5, 64}};
    num_requests = 20;
  }
  std::mt19937 random(11);
  const std::vector<Request> requests = random_requests(num_requests, random);
  const std::vector<Answer> expected = answers_alone(requests, config, test_device());
  int64_t num_hits = 0, num_preemptions = 0;
  for (const Crowd& crowd : crowds) {
    SCOPED_TRACE(fmt::format("{} sequences, {} tokens in a step, {} blocks",
                             crowd.max_num_seqs,
                             crowd.max_num_batched_tokens,
                             crowd.num_blocks));
    config.scheduler.max_num_seqs = crowd.max_num_seqs;
    config.scheduler.max_num_batched_tokens = crowd.max_num_batched_tokens;
    config.cache.num_blocks = crowd.num_blocks;
    Engine engine(config, test_device());
    // Arriving at random times, so that each meets other companions in each crowd.
    std::vector<uint64_t> arrivals(num_requests);
    for (uint64_t& arrival : arrivals) arrival = random() % (num_requests * 3 / 2);
    std::sort(arrivals.begin(), arrivals.end());
    const auto due = [&](uint64_t step) {
      return static_cast<size_t>(std::upper_bound(arrivals.begin(), arrivals.end(), step) -
                                 arrivals.begin());
    };
    expect_answers(requests, expected, engine.run(requests, due), 0);
    num_hits += engine.stats().num_prefix_hit_tokens;
    num_preemptions += engine.stats().num_preemptions;
  }
  EXPECT_GT(num_hits, 0);
  EXPECT_GT(num_preemptions, 0);
}

TEST(ModelRunner, DeterministicBfloat16) {
  EngineConfig config;
  config.model.dtype = DType::kBFloat16;
  check_deterministic(config);
}

TEST(ModelRunner, DeterministicFloat32) {
  EngineConfig config;
  config.model.dtype = DType::kFloat32;
  check_deterministic(config);
}

TEST(ModelRunner, DeterministicFloat8) {
  EngineConfig config;
  config.model.dtype = DType::kBFloat16;
  config.model.quantization = QuantizationChoice::kFp8;
  config.cache.dtype = DType::kFloat8E4M3;
  check_deterministic(config);
}

}  // namespace
}  // namespace atom
