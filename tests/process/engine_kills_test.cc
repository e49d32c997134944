// The engine with its core in a process of its own that is killed and stopped under load.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>

#include "tests/process/engine_harness_test.h"
#include "tests/support/synthetic_checkpoint.h"

namespace atom {
namespace {

using ::testing::HasSubstr;

double milliseconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

std::vector<std::shared_ptr<Tracked>> submit_many(LLMEngine* engine,
                                                  size_t count,
                                                  int32_t max_tokens) {
  std::vector<std::shared_ptr<Tracked>> requests;
  for (size_t i = 0; i < count; ++i) {
    requests.push_back(std::make_shared<Tracked>());
    EXPECT_TRUE(submit(engine, requests.back(), random(i, max_tokens)).ok());
  }
  return requests;
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
    const auto requests = submit_many(engine.get(), 16, 500);
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
      worst_notice = std::max(worst_notice, milliseconds_between(killed, request->finished));
    }
    {
      const std::lock_guard lock(mutex);
      ASSERT_GT(restarting_since, killed);
      worst_notice = std::max(worst_notice, milliseconds_between(killed, restarting_since));
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

// How often a test kills: ATOM_TEST_KILLS, for longer runs, or `usual`.
int num_kills(int usual) {
  const char* asked = std::getenv("ATOM_TEST_KILLS");
  return asked == nullptr ? usual : std::atoi(asked);
}

struct Submitted {
  std::vector<std::shared_ptr<Tracked>> requests;
  std::vector<RequestId> ids;
};

// Requests that go on for long, each of which has been answered a first token.
Submitted submit_and_begin(LLMEngine* engine, size_t count) {
  Submitted submitted;
  for (size_t i = 0; i < count; ++i) {
    submitted.requests.push_back(std::make_shared<Tracked>());
    submitted.ids.push_back(submit(engine, submitted.requests.back(), random(i, 500)).value());
  }
  for (const auto& request : submitted.requests) {
    EXPECT_TRUE(eventually([&] { return request->num_tokens > 0; }));
  }
  return submitted;
}

// Copies of the model, of two ranks each: one that is killed, at any moment, loses its own requests
// alone, the others serve on, and it comes back beside them.
TEST(EngineProcess, ACopyThatDiesIsReplacedWhileTheOthersServe) {
  constexpr size_t kCopies = 3;
  EngineConfig config = demo_config();
  config.device.num_threads = 0;
  config.parallel.tensor_parallel_size = 2;
  config.parallel.data_parallel_size = kCopies;
  config.parallel.data_parallel_balance = DataParallelBalance::kRoundRobin;
  config.supervision.max_restarts = 1000;
  const Clock::time_point begin = Clock::now();
  const auto engine = make_engine(config, in_child());
  const double load_time = milliseconds_since(begin);
  EXPECT_EQ(engine->stats().num_blocks, int64_t{kCopies} * 1024);
  std::mt19937 choose(7);
  double worst_notice = 0, worst_restart = 0;
  const int num_rounds = num_kills(3);
  for (int round = 0; round < num_rounds; ++round) {
    ASSERT_EQ(children().size(), kCopies);
    const auto [requests, ids] = submit_and_begin(engine.get(), 2 * kCopies);
    std::this_thread::sleep_for(std::chrono::microseconds(choose() % 5000));
    const pid_t pid = children()[choose() % kCopies];
    const Clock::time_point killed = Clock::now();
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    ASSERT_TRUE(eventually([&] { return !engine->health().reason.empty(); }));
    EXPECT_TRUE(is_ready(*engine));
    const auto another = std::make_shared<Tracked>();
    ASSERT_TRUE(submit(engine.get(), another, random(7, 5)).ok());
    ASSERT_TRUE(eventually([&] { return engine->health().reason.empty(); }));
    worst_restart = std::max(worst_restart, milliseconds_since(killed));
    size_t num_lost = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto& request = requests[i];
      const int num_tokens = request->num_tokens;
      ASSERT_TRUE(
          eventually([&] { return request->num_tokens > num_tokens || request->num_final == 1; }));
      engine->abort(ids[i]);
      ASSERT_TRUE(eventually([&] { return request->num_final == 1; }));
      if (request->status.ok()) continue;
      ++num_lost;
      worst_notice = std::max(worst_notice, milliseconds_between(killed, request->finished));
      EXPECT_THAT(request->status.message(),
                  HasSubstr("of the engine died (signal 9: Killed) and is being restarted"));
    }
    EXPECT_EQ(num_lost, 2u);
    ASSERT_TRUE(eventually([&] { return another->num_final == 1; }));
    EXPECT_TRUE(another->status.ok()) << another->status.message();
    EXPECT_FALSE(process_exists(pid));
    EXPECT_EQ(engine->health().num_restarts, static_cast<uint64_t>(round + 1));
    EXPECT_TRUE(
        eventually([&] { return engine->stats().num_free_blocks == int64_t{kCopies} * 1024; }));
  }
  EXPECT_LE(worst_notice, 1000.0 * kTimeScale);
  EXPECT_LE(worst_restart, 5000.0 * kTimeScale + load_time);
  std::printf("load %.0f ms; worst of %d kills: noticed after %.1f ms, ready after %.0f ms\n",
              load_time,
              num_rounds,
              worst_notice,
              worst_restart);
}

// Copies that share experts, whose ranks are threads of one process: killed at any moment of their
// steps under load it is noticed, all of them come back together, and nothing is left behind.
TEST(EngineProcess, CopiesThatShareExpertsComeBackTogether) {
  const TemporaryFolder folder;
  ASSERT_TRUE(materialize_checkpoint(golden_folder() + "/qwen3-moe", folder.path()).ok());
  EngineConfig config = demo_config();
  config.model.model = folder.path();
  config.model.skip_tokenizer_init = true;
  config.cache.num_blocks = 256;
  config.parallel.data_parallel_size = 2;
  config.parallel.enable_expert_parallel = true;
  config.supervision.max_restarts = 1000;
  const Clock::time_point begin = Clock::now();
  const auto engine = make_engine(config, in_child());
  const double load_time = milliseconds_since(begin);
  const int num_rounds = num_kills(6);
  std::mt19937 choose(5);
  double worst_notice = 0, worst_restart = 0;
  for (int round = 0; round < num_rounds; ++round) {
    const auto requests = submit_many(engine.get(), 12, 400);
    const size_t watched = choose() % requests.size();
    ASSERT_TRUE(eventually([&] { return requests[watched]->num_tokens > 0; }));
    std::this_thread::sleep_for(std::chrono::microseconds(choose() % 20000));
    const pid_t pid = engine->health().pid;
    const Clock::time_point killed = Clock::now();
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    for (const auto& request : requests) {
      ASSERT_TRUE(eventually([&] { return request->num_final > 0; }));
      if (request->status.ok()) continue;  // it had ended just before
      EXPECT_EQ(request->status.code(), StatusCode::kUnavailable);
      worst_notice = std::max(worst_notice, milliseconds_between(killed, request->finished));
    }
    ASSERT_TRUE(eventually([&] { return is_ready(*engine) && engine->health().pid != pid; }));
    const auto again = submit_many(engine.get(), 4, 3);
    for (const auto& request : again) {
      ASSERT_TRUE(eventually([&] { return request->num_final > 0; }));
      EXPECT_TRUE(request->status.ok()) << request->status.message();
    }
    worst_restart = std::max(worst_restart, milliseconds_since(killed));
    EXPECT_EQ(engine->health().num_restarts, static_cast<uint64_t>(round + 1));
    EXPECT_EQ(engine->stats().num_free_blocks, int64_t{2} * 256);
    EXPECT_EQ(engine->stats().num_running, 0);
    for (const auto& request : requests) EXPECT_EQ(request->num_final, 1);
  }
  EXPECT_LE(worst_notice, 1000.0 * kTimeScale);
  EXPECT_LE(worst_restart, 5000.0 * kTimeScale + load_time);
  std::printf(
      "load %.0f ms; worst of %d kills: noticed after %.1f ms, answered again after %.0f ms\n",
      load_time,
      num_rounds,
      worst_notice,
      worst_restart);
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

// One thread's requests to an engine that others kill, and what became of them.
struct Client {
  // Until `stopping`; some requests are aborted, and so are some that are long gone.
  void ask(LLMEngine* engine, uint32_t seed, const std::atomic<bool>& stopping) {
    std::mt19937 choose(seed);
    while (!stopping) {
      auto request = std::make_shared<Tracked>();
      SamplingParams sampling = random(choose(), 1 + static_cast<int32_t>(choose() % 60));
      sampling.n = 1 + static_cast<int32_t>(choose() % 3);
      const Result<RequestId> id = submit(engine, request, sampling);
      if (!id.ok()) {
        EXPECT_EQ(id.status().message(), "the engine is restarting");
        ++num_refused;
        std::this_thread::sleep_for(milliseconds(1));
        continue;
      }
      accepted.push_back(request);
      if (choose() % 4 == 0) engine->abort(*id);
      if (choose() % 8 == 0) engine->abort(*id - choose() % 50);
      if (accepted.size() % 8 == 0) {
        eventually([&] { return request->num_final > 0 || stopping; });
        if (request->num_tokens > 0) ++num_answered;
      }
    }
  }

  std::vector<std::shared_ptr<Tracked>> accepted;
  int num_refused = 0;
  std::atomic<int> num_answered{0};
};

TEST(EngineProcess, EveryRequestEndsOnceWhateverHappens) {
  EngineConfig config = demo_config();
  config.supervision.max_restarts = 1000;
  const auto engine = make_engine(config, in_child());
  std::atomic<bool> stopping{false};
  std::array<Client, 4> clients;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < clients.size(); ++i) {
    threads.emplace_back(
        [&, i] { clients[i].ask(engine.get(), static_cast<uint32_t>(i), stopping); });
  }
  const auto num_answered = [&] {
    int sum = 0;
    for (const Client& client : clients) sum += client.num_answered;
    return sum;
  };
  std::mt19937 choose(99);
  for (int round = 0; round < 20; ++round) {
    EXPECT_TRUE(eventually([&] { return is_ready(*engine); }));
    // Not always: a life that served nothing makes the next one come later.
    const int before = num_answered();
    if (round % 4 != 0) eventually([&] { return num_answered() > before; });
    std::this_thread::sleep_for(milliseconds(choose() % 20));
    ::kill(engine->health().pid, SIGKILL);
    EXPECT_TRUE(eventually(
        [&] { return engine->health().num_restarts == static_cast<uint64_t>(round + 1); }));
  }
  EXPECT_TRUE(eventually([&] { return is_ready(*engine); }));
  stopping = true;
  for (std::thread& thread : threads) thread.join();
  size_t num_accepted = 0;
  int num_served = 0;
  int num_refused = 0;
  for (const Client& client : clients) {
    num_accepted += client.accepted.size();
    num_refused += client.num_refused;
    for (const auto& request : client.accepted) {
      ASSERT_TRUE(eventually([&] { return request->num_final > 0; }));
      if (request->status.ok()) ++num_served;
    }
  }
  (void)engine->generate({std::vector<int32_t>{1}}, random(1, 5));
  for (const Client& client : clients) {
    for (const auto& request : client.accepted) EXPECT_EQ(request->num_final, 1);
  }
  EXPECT_GT(num_served, 0);
  EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
  std::printf("%zu requests over 20 kills: %d served, %d refused meanwhile\n",
              num_accepted,
              num_served,
              num_refused);
}

}  // namespace
}  // namespace atom
