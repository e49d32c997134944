// The engine with its core in a process of its own, under every kind of violence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/child_process.h"
#include "base/env.h"
#include "engine/llm_engine.h"
#include "engine/zmq_frames.h"
#include "tests/process/process_probe.h"
#include "tests/support/test_folders.h"

namespace atom {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr double kNoticeLimit = 100.0 * kTimeScale;  // ms from a death to everybody's knowing

EngineConfig demo_config() {
  EngineConfig config;
  config.model.model = demo_model_folder();
  config.model.max_model_len = 512;
  config.cache.num_blocks = 1024;
  config.device.device = DeviceChoice::kCpu;  // where answers do not depend on the batch
  config.device.num_threads = 1;              // on a busy machine the quickest
  return config;
}

LLMEngineOptions in_child(const std::string& executable = ATOM_EXECUTABLE) {
  LLMEngineOptions options;
  options.launch.child_process = true;
  options.launch.executable = executable;
  return options;
}

std::unique_ptr<LLMEngine> make_engine(const EngineConfig& config, LLMEngineOptions options) {
  Result<std::unique_ptr<LLMEngine>> engine = LLMEngine::create(config, std::move(options));
  if (!engine.ok()) {
    ADD_FAILURE() << engine.status().message();
    std::abort();
  }
  return std::move(engine).value();
}

SamplingParams random(uint64_t seed, int32_t max_tokens) {
  SamplingParams params;
  params.seed = seed;
  params.max_tokens = max_tokens;
  params.ignore_eos = true;
  return params;
}

std::vector<Prompt> prompts(size_t count) {
  std::vector<Prompt> result;
  for (size_t i = 0; i < count; ++i) {
    std::vector<int32_t> ids;
    for (size_t k = 0; k <= i % 7; ++k) ids.push_back(static_cast<int32_t>(5 + 31 * i + k));
    result.emplace_back(std::move(ids));
  }
  return result;
}

// A request and what its callback was told.
struct Tracked {
  std::atomic<int> num_tokens{0};
  std::atomic<int> num_final{0};
  Status status;               // of the last call; read after it
  Clock::time_point finished;  // likewise
};

Result<RequestId> submit(LLMEngine* engine,
                         const std::shared_ptr<Tracked>& request,
                         const SamplingParams& sampling) {
  return engine->submit(std::vector<int32_t>{1, 2, 3},
                        sampling,
                        [request](const RequestOutput& output, const RequestUpdate& update) {
                          request->num_tokens += static_cast<int>(update.token_ids.size());
                          if (!output.finished) return;
                          request->status = output.status;
                          request->finished = Clock::now();
                          ++request->num_final;
                        });
}

bool is_ready(const LLMEngine& engine) {
  return engine.health().state == EngineState::kReady;
}

TEST(EngineProcess, AnswersAsAThreadDoes) {
  const std::vector<Prompt> batch = prompts(12);
  std::vector<SamplingParams> sampling;
  for (size_t i = 0; i < batch.size(); ++i) {
    sampling.push_back(random(i, 30 + static_cast<int32_t>(i)));
    if (i % 3 == 1) sampling.back().logprobs = 2;
    if (i % 3 == 2) sampling.back().n = 3;
  }
  int num_loading = 0;
  LLMEngineOptions options = in_child();
  options.on_loading = [&](const CoreLoading&) { ++num_loading; };
  const auto child = make_engine(demo_config(), options);
  EXPECT_GT(num_loading, 0);
  const auto thread = make_engine(demo_config(), {});
  EXPECT_EQ(child->memory().num_blocks, thread->memory().num_blocks);
  const std::vector<RequestOutput> ours = child->generate(batch, sampling);
  const std::vector<RequestOutput> expected = thread->generate(batch, sampling);
  for (size_t i = 0; i < batch.size(); ++i) {
    ASSERT_TRUE(ours[i].status.ok()) << ours[i].status.message();
    ASSERT_EQ(ours[i].outputs.size(), expected[i].outputs.size());
    for (size_t k = 0; k < ours[i].outputs.size(); ++k) {
      EXPECT_EQ(ours[i].outputs[k].token_ids, expected[i].outputs[k].token_ids);
      EXPECT_EQ(ours[i].outputs[k].text, expected[i].outputs[k].text);
      EXPECT_EQ(ours[i].outputs[k].logprobs.size(), expected[i].outputs[k].logprobs.size());
    }
  }
  EXPECT_EQ(child->stats().num_running, 0);
}

TEST(EngineProcess, CreationErrorsOfTheChildComeThrough) {
  EngineConfig config = demo_config();
  config.cache.num_blocks = 3;
  const Status few = LLMEngine::create(config, in_child()).status();
  EXPECT_EQ(few.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(few.message(), HasSubstr("--max-model-len"));

  const TemporaryFolder folder;
  std::filesystem::copy(demo_model_folder() + "/config.json", folder.path());
  config = demo_config();
  config.model.model = folder.path();
  config.model.skip_tokenizer_init = true;
  const Status absent = LLMEngine::create(config, in_child()).status();
  EXPECT_THAT(absent.message(), HasSubstr(folder.path()));
  EXPECT_THAT(absent.message(), HasSubstr("safetensors"));

  const Status no_program = LLMEngine::create(demo_config(), in_child("/nonexistent")).status();
  EXPECT_THAT(no_program.message(), HasSubstr("cannot execute /nonexistent"));
  const Status exits = LLMEngine::create(demo_config(), in_child("/bin/false")).status();
  EXPECT_THAT(exits.message(), HasSubstr("exit code 1"));
  EXPECT_TRUE(children().empty());
}

TEST(EngineProcess, TheCommandIsNotForUsers) {
  const std::string command = std::string(ATOM_EXECUTABLE) +
                              " engine-core --requests=ipc:///x "
                              "--responses=ipc:///x --identity=x 2>/dev/null </dev/null";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

TEST(EngineProcess, KilledUnderLoadThirtyTimes) {
  std::mutex mutex;
  Clock::time_point restarting_since;
  LLMEngineOptions options = in_child();
  options.on_health = [&](const EngineHealth& health) {
    const std::lock_guard lock(mutex);
    if (health.state == EngineState::kRestarting) restarting_since = Clock::now();
  };
  const Clock::time_point begin = Clock::now();
  const auto engine = make_engine(demo_config(), options);
  const double load_time = milliseconds_since(begin);
  uint64_t num_steps = 0;
  size_t num_files = 0;
  double worst_notice = 0;
  double worst_restart = 0;
  for (int round = 0; round < 30; ++round) {
    std::vector<std::shared_ptr<Tracked>> requests;
    for (int i = 0; i < 16; ++i) {
      requests.push_back(std::make_shared<Tracked>());
      ASSERT_TRUE(submit(engine.get(), requests.back(), random(i, 500)).ok());
    }
    ASSERT_TRUE(eventually([&] { return requests[15]->num_tokens > 0; }));
    std::this_thread::sleep_for(milliseconds(round % 5));
    EXPECT_GE(engine->stats().num_steps, num_steps);
    num_steps = engine->stats().num_steps;

    const pid_t pid = engine->health().pid;
    const Clock::time_point killed = Clock::now();
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    for (const auto& request : requests) {
      ASSERT_TRUE(eventually([&] { return request->num_final > 0; }));
      EXPECT_EQ(request->status.code(), StatusCode::kUnavailable);
      EXPECT_EQ(request->status.message(),
                "the engine died (signal 9: Killed) and is being restarted; the request was lost");
      worst_notice =
          std::max(worst_notice,
                   std::chrono::duration<double, std::milli>(request->finished - killed).count());
    }
    {
      const std::lock_guard lock(mutex);
      ASSERT_GT(restarting_since, killed);
      worst_notice =
          std::max(worst_notice,
                   std::chrono::duration<double, std::milli>(restarting_since - killed).count());
    }
    ASSERT_TRUE(eventually([&] { return is_ready(*engine); }));
    worst_restart = std::max(worst_restart, milliseconds_since(killed));
    EXPECT_FALSE(process_exists(pid));
    EXPECT_EQ(children(), std::vector<pid_t>{engine->health().pid});
    EXPECT_EQ(engine->health().num_restarts, static_cast<uint64_t>(round + 1));
    for (const auto& request : requests) EXPECT_EQ(request->num_final, 1);
    if (round == 0) num_files = num_open_files();
  }
  EXPECT_LE(worst_notice, kNoticeLimit);
  EXPECT_LE(worst_restart, 2000 * kTimeScale + load_time);
  EXPECT_TRUE(eventually([&] { return num_open_files() <= num_files; }))
      << num_files << " files grew to " << num_open_files();
  const RequestOutput output = engine->generate({std::vector<int32_t>{1}}, random(1, 5))[0];
  EXPECT_TRUE(output.status.ok()) << output.status.message();
  EXPECT_GT(engine->stats().num_steps, num_steps);
  std::printf("load %.0f ms; worst of 30 kills: noticed after %.1f ms, ready after %.0f ms\n",
              load_time,
              worst_notice,
              worst_restart);
}

// Copies of the model, of two ranks each: one that is killed loses its own requests alone, the
// others serve on, and it comes back beside them.
TEST(EngineProcess, ACopyThatDiesIsReplacedWhileTheOthersServe) {
  constexpr size_t kCopies = 3;
  EngineConfig config = demo_config();
  config.device.num_threads = 0;
  config.parallel.tensor_parallel_size = 2;
  config.parallel.data_parallel_size = kCopies;
  config.parallel.data_parallel_balance = DataParallelBalance::kRoundRobin;
  const auto engine = make_engine(config, in_child());
  EXPECT_EQ(engine->stats().num_blocks, int64_t{kCopies} * 1024);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(children().size(), kCopies);
    std::vector<std::shared_ptr<Tracked>> requests;
    for (size_t i = 0; i < 2 * kCopies; ++i) {
      requests.push_back(std::make_shared<Tracked>());
      ASSERT_TRUE(submit(engine.get(), requests.back(), random(i, 200)).ok());
    }
    for (const auto& request : requests) {
      ASSERT_TRUE(eventually([&] { return request->num_tokens > 0; }));
    }
    const pid_t pid = children()[round];
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    ASSERT_TRUE(eventually([&] { return !engine->health().reason.empty(); }));
    EXPECT_TRUE(is_ready(*engine));
    const auto another = std::make_shared<Tracked>();
    ASSERT_TRUE(submit(engine.get(), another, random(7, 5)).ok());
    size_t num_lost = 0;
    for (const auto& request : requests) {
      ASSERT_TRUE(eventually([&] { return request->num_final == 1; }));
      if (request->status.ok()) continue;
      ++num_lost;
      EXPECT_THAT(request->status.message(),
                  HasSubstr("of the engine died (signal 9: Killed) and is being restarted"));
    }
    EXPECT_EQ(num_lost, 2u);
    ASSERT_TRUE(eventually([&] { return another->num_final == 1; }));
    EXPECT_TRUE(another->status.ok()) << another->status.message();
    ASSERT_TRUE(eventually([&] { return engine->health().reason.empty(); }));
    EXPECT_FALSE(process_exists(pid));
    EXPECT_EQ(engine->health().num_restarts, static_cast<uint64_t>(round + 1));
  }
  EXPECT_EQ(engine->stats().num_free_blocks, int64_t{kCopies} * 1024);
}

TEST(EngineProcess, AStoppedProcessIsSeenAndForgiven) {
  const auto engine = make_engine(demo_config(), in_child());
  double worst_notice = 0;
  for (int round = 0; round < 5; ++round) {
    const auto request = std::make_shared<Tracked>();
    ASSERT_TRUE(submit(engine.get(), request, random(round, 100)).ok());
    ASSERT_TRUE(eventually([&] { return request->num_tokens > 0; }));
    ASSERT_TRUE(eventually([&] { return is_ready(*engine); }));
    const pid_t pid = engine->health().pid;
    const uint64_t num_unresponsive = engine->health().num_unresponsive;
    const Clock::time_point stopped = Clock::now();
    ASSERT_EQ(::kill(pid, SIGSTOP), 0);
    ASSERT_TRUE(eventually([&] { return engine->health().state == EngineState::kUnresponsive; }));
    worst_notice = std::max(worst_notice, milliseconds_since(stopped));
    EXPECT_GT(engine->health().num_unresponsive, num_unresponsive);
    // It may take more, which waits.
    const auto another = std::make_shared<Tracked>();
    EXPECT_TRUE(submit(engine.get(), another, random(round, 5)).ok());
    ASSERT_EQ(::kill(pid, SIGCONT), 0);
    ASSERT_TRUE(eventually([&] { return is_ready(*engine); }));
    ASSERT_TRUE(eventually([&] { return request->num_final + another->num_final == 2; }));
    EXPECT_TRUE(request->status.ok()) << request->status.message();
    EXPECT_TRUE(another->status.ok()) << another->status.message();
    EXPECT_EQ(engine->health().pid, pid);
  }
  EXPECT_LE(worst_notice, kNoticeLimit);
  std::printf("worst of 5 stops: seen after %.1f ms\n", worst_notice);
}

TEST(EngineProcess, AProcessStoppedForTooLongIsReplaced) {
  EngineConfig config = demo_config();
  config.supervision.hang_timeout = 0.5 * kTimeScale;
  const auto engine = make_engine(config, in_child());
  const auto request = std::make_shared<Tracked>();
  ASSERT_TRUE(submit(engine.get(), request, random(1, 500)).ok());
  ASSERT_TRUE(eventually([&] { return request->num_tokens > 0; }));
  const pid_t pid = engine->health().pid;
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  ASSERT_TRUE(eventually([&] { return request->num_final == 1; }));
  EXPECT_THAT(request->status.message(), HasSubstr("was silent for"));
  ASSERT_TRUE(eventually([&] { return is_ready(*engine); }));
  EXPECT_FALSE(process_exists(pid));
}

TEST(EngineProcess, ARestartStormEndsInFailure) {
  // A program that is the engine once, and then no more.
  const TemporaryFolder folder;
  const std::string script = folder.file("engine.sh");
  std::ofstream(script) << "#!/bin/sh\n[ -e " << folder.file("used") << " ] && exit 7\n: > "
                        << folder.file("used") << "\nexec " << ATOM_EXECUTABLE << " \"$@\"\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  EngineConfig config = demo_config();
  config.supervision.max_restarts = 3;
  const auto engine = make_engine(config, in_child(script));
  EXPECT_TRUE(engine->generate({std::vector<int32_t>{1}}, random(1, 5))[0].status.ok());
  ::kill(engine->health().pid, SIGKILL);
  ASSERT_TRUE(eventually([&] { return engine->health().state == EngineState::kFailed; }));
  const EngineHealth health = engine->health();
  EXPECT_THAT(health.reason, HasSubstr("exit code 7"));
  EXPECT_THAT(health.reason, HasSubstr("3 restarts in a row"));
  const Status refused = submit(engine.get(), std::make_shared<Tracked>(), random(1, 5)).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("exit code 7"));
  EXPECT_TRUE(eventually([] { return children().empty(); }));
}

TEST(EngineProcess, EveryRequestEndsOnceWhateverHappens) {
  EngineConfig config = demo_config();
  config.supervision.max_restarts = 1000;
  const auto engine = make_engine(config, in_child());
  std::atomic<bool> stopping{false};
  std::atomic<int> num_served{0};
  std::atomic<int> num_refused{0};
  std::atomic<int> num_answered{0};
  std::vector<std::vector<std::shared_ptr<Tracked>>> accepted(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < accepted.size(); ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 choose(static_cast<uint32_t>(t));
      while (!stopping) {
        auto request = std::make_shared<Tracked>();
        SamplingParams sampling = random(choose(), 1 + static_cast<int32_t>(choose() % 60));
        sampling.n = 1 + static_cast<int32_t>(choose() % 3);
        const Result<RequestId> id = submit(engine.get(), request, sampling);
        if (!id.ok()) {
          EXPECT_EQ(id.status().message(), "the engine is restarting");
          ++num_refused;
          std::this_thread::sleep_for(milliseconds(1));
          continue;
        }
        accepted[t].push_back(request);
        if (choose() % 4 == 0) engine->abort(*id);
        if (choose() % 8 == 0) engine->abort(*id - choose() % 50);
        if (accepted[t].size() % 8 == 0) {
          eventually([&] { return request->num_final > 0 || stopping; });
          if (request->num_tokens > 0) ++num_answered;
        }
      }
    });
  }
  std::mt19937 choose(99);
  for (int round = 0; round < 20; ++round) {
    EXPECT_TRUE(eventually([&] { return is_ready(*engine); }));
    // Not always: a life that served nothing makes the next one come later.
    const int before = num_answered;
    if (round % 4 != 0) eventually([&] { return num_answered > before; });
    std::this_thread::sleep_for(milliseconds(choose() % 20));
    ::kill(engine->health().pid, SIGKILL);
    EXPECT_TRUE(eventually(
        [&] { return engine->health().num_restarts == static_cast<uint64_t>(round + 1); }));
  }
  EXPECT_TRUE(eventually([&] { return is_ready(*engine); }));
  stopping = true;
  for (std::thread& thread : threads) thread.join();
  size_t num_accepted = 0;
  for (const auto& requests : accepted) {
    for (const auto& request : requests) {
      ++num_accepted;
      ASSERT_TRUE(eventually([&] { return request->num_final > 0; }));
      if (request->status.ok()) ++num_served;
    }
  }
  (void)engine->generate({std::vector<int32_t>{1}}, random(1, 5));
  for (const auto& requests : accepted) {
    for (const auto& request : requests) EXPECT_EQ(request->num_final, 1);
  }
  EXPECT_GT(num_served, 0);
  EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
  std::printf("%zu requests over 20 kills: %d served, %d refused meanwhile\n",
              num_accepted,
              num_served.load(),
              num_refused.load());
}

TEST(EngineProcess, CallbacksMaySubmitWhileTheEngineGoesDown) {
  const auto engine = make_engine(demo_config(), in_child());
  std::atomic<bool> asked{false};
  Status refused;
  const auto id = engine->submit(
      std::vector<int32_t>{1}, random(1, 500), [&](const RequestOutput& output, const auto&) {
        if (!output.finished) return;
        refused = submit(engine.get(), std::make_shared<Tracked>(), random(1, 5)).status();
        engine->abort(output.id);
        asked = true;
      });
  ASSERT_TRUE(id.ok());
  ::kill(engine->health().pid, SIGKILL);
  ASSERT_TRUE(eventually([&] { return asked.load(); }));
  EXPECT_EQ(refused.message(), "the engine is restarting");
}

TEST(EngineProcess, DestructionInEveryState) {
  for (int round = 0; round < 8; ++round) {
    EngineConfig config = demo_config();
    config.supervision.shutdown_timeout = 0.3 * kTimeScale;
    const auto engine = make_engine(config, in_child());
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(submit(engine.get(), std::make_shared<Tracked>(), random(i, 300)).ok());
    }
    const pid_t pid = engine->health().pid;
    if (round % 4 == 1) ::kill(pid, SIGKILL);
    if (round % 4 == 2) ::kill(pid, SIGSTOP);
    if (round % 4 == 3) {
      ::kill(pid, SIGKILL);
      eventually([&] { return engine->health().num_restarts == 1; });
    }
  }
  EXPECT_TRUE(children().empty());
}

// The folders of this process's engines.
std::vector<std::filesystem::path> socket_folders() {
  std::vector<std::filesystem::path> folders;
  const std::string& parent = env().runtime_folder;
  for (const auto& entry :
       std::filesystem::directory_iterator(parent.empty() ? "/tmp" : parent.c_str())) {
    const std::string name = entry.path().filename().string();
    const std::string prefix = "atom-engine." + std::to_string(::getpid()) + ".";
    if (name.starts_with(prefix)) folders.push_back(entry.path());
  }
  return folders;
}

void write_to_socket(const std::string& path, const std::string& bytes) {
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  (void)!::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

TEST(EngineProcess, WhatOthersWriteToItsSocketsDoesNoHarm) {
  const auto engine = make_engine(demo_config(), in_child());
  ASSERT_EQ(socket_folders().size(), 1u);
  const std::string folder = socket_folders()[0].string();
  const auto request = std::make_shared<Tracked>();
  ASSERT_TRUE(submit(engine.get(), request, random(1, 200)).ok());
  std::mt19937 choose(5);
  for (int round = 0; round < 20; ++round) {
    std::string noise(choose() % 3000, '\0');
    for (char& byte : noise) byte = static_cast<char>(choose());
    write_to_socket(folder + "/requests-0", noise);
    write_to_socket(folder + "/responses-0", noise);
  }
  zmq::context_t context;
  zmq::socket_t impostor =
      atom::connect(context, zmq::socket_type::dealer, "ipc://" + folder + "/requests-0", "core-0");
  zmq::socket_t forger =
      atom::connect(context, zmq::socket_type::push, "ipc://" + folder + "/responses-0");
  for (int round = 0; round < 100; ++round) {
    std::vector<uint8_t> noise(choose() % 300);
    for (uint8_t& byte : noise) byte = static_cast<uint8_t>(choose());
    send_frame(forger, noise);
    send_frame(impostor, noise);
    send_frame(forger, encode(CoreResponse(CoreReady{})));
    StepOutput step;
    step.deltas.emplace_back().id = 1000000 + round;
    step.deltas.back().finish_reason = FinishReason::kStop;
    send_frame(forger, encode(CoreResponse(step)));
  }
  ASSERT_TRUE(eventually([&] { return request->num_final == 1; }));
  EXPECT_TRUE(request->status.ok()) << request->status.message();
  EXPECT_EQ(request->num_tokens, 200);
  EXPECT_EQ(engine->health().num_restarts, 0u);
}

TEST(EngineProcess, LeavesNoFilesBehind) {
  {
    const auto engine = make_engine(demo_config(), in_child());
    EXPECT_EQ(socket_folders().size(), 1u);
    ::kill(engine->health().pid, SIGKILL);
    ASSERT_TRUE(eventually([&] { return engine->health().num_restarts == 1; }));
  }
  EXPECT_TRUE(socket_folders().empty());
  EXPECT_FALSE(LLMEngine::create(demo_config(), in_child("/bin/false")).ok());
  EXPECT_TRUE(socket_folders().empty());
}

// A front end in a process of its own, and the pid of its engine.
struct FrontEnd {
  FrontEnd() {
    std::array<int, 2> ends{};
    CHECK(::pipe(ends.data()) == 0);
    pid = ::fork();
    if (pid == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::close(ends[0]);
      ::close(ends[1]);
      ::execl(ATOM_PROCESS_PARENT,
              ATOM_PROCESS_PARENT,
              ATOM_EXECUTABLE,
              demo_model_folder().c_str(),
              nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    FILE* output = ::fdopen(ends[0], "r");
    if (std::fscanf(output, "%d", &engine_pid) != 1) engine_pid = -1;
    std::fclose(output);
  }
  ~FrontEnd() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }

  pid_t pid = -1;
  pid_t engine_pid = -1;
};

bool is_gone(pid_t pid) {
  const std::string state = process_state(pid);
  return state.empty() || state == "Z";  // whoever adopted it may be slow to reap
}

TEST(EngineProcess, EndsWithItsFrontEnd) {
  double worst = 0;
  for (int round = 0; round < 5; ++round) {
    FrontEnd front_end;
    ASSERT_GT(front_end.engine_pid, 0);
    ASSERT_FALSE(is_gone(front_end.engine_pid));
    // A stopped process cannot watch for the end of its parent: then the kernel does it.
    if (round % 2 == 1) ::kill(front_end.engine_pid, SIGSTOP);
    const Clock::time_point killed = Clock::now();
    ::kill(front_end.pid, SIGKILL);
    ASSERT_TRUE(eventually([&] { return is_gone(front_end.engine_pid); }));
    worst = std::max(worst, milliseconds_since(killed));
  }
  EXPECT_LE(worst, 500 * kTimeScale);
  std::printf("front end killed: engine gone after %.1f ms at worst\n", worst);
}

TEST(EngineProcess, IgnoresWhatATerminalSendsToTheGroup) {
  const auto engine = make_engine(demo_config(), in_child());
  const pid_t pid = engine->health().pid;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::kill(pid, signal);
  EXPECT_TRUE(engine->generate({std::vector<int32_t>{1}}, random(1, 5))[0].status.ok());
  EXPECT_EQ(engine->health().pid, pid);
}

}  // namespace
}  // namespace atom
