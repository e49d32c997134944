// The supervision of cores that misbehave in every way (fake_core.cc).
#include "engine/core_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "tests/process/process_probe.h"

namespace atom {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// A manager and what it told.
class Supervised {
 public:
  explicit Supervised(const std::string& mode, SupervisionConfig supervision = {}) {
    ResolvedConfig config;
    config.engine.model.model = mode;
    config.engine.supervision = supervision;
    CoreHandlers handlers;
    handlers.on_loading = [this](const CoreLoading&) { ++num_loading; };
    handlers.on_ready = [this](const CoreReady& ready) {
      EXPECT_EQ(ready.num_blocks, 4);
      ++num_ready;
    };
    handlers.on_step = [this](const StepOutput&) { ++num_steps; };
    handlers.on_down = [this](const Status& lost, const Status& refusal) {
      const std::lock_guard lock(mutex_);
      lost_.push_back(lost.message());
      refusal_ = refusal.message();
    };
    handlers.on_health = [this](const EngineHealth& health) {
      const std::lock_guard lock(mutex_);
      states_.push_back(health.state);
    };
    CoreLaunch launch;
    launch.child_process = true;
    launch.executable = ATOM_FAKE_CORE;
    auto started = CoreManager::start(config, 10, launch, handlers);
    status = started.status();
    if (started.ok()) manager = std::move(started).value();
  }
  ~Supervised() { manager.reset(); }

  void ask() {
    AddRequest request;
    request.id = next_id_++;
    request.prompt_token_ids = {1};
    manager->send(request);
  }
  bool reaches(EngineState state) {
    return eventually([&] { return manager->health().state == state; });
  }
  std::vector<std::string> lost() {
    const std::lock_guard lock(mutex_);
    return lost_;
  }
  std::string refusal() {
    const std::lock_guard lock(mutex_);
    return refusal_;
  }
  std::vector<EngineState> states() {
    const std::lock_guard lock(mutex_);
    return states_;
  }

  Status status;
  std::unique_ptr<CoreManager> manager;
  std::atomic<int> num_loading{0};
  std::atomic<int> num_ready{0};
  std::atomic<int> num_steps{0};

 private:
  std::mutex mutex_;
  std::vector<std::string> lost_;
  std::string refusal_;
  std::vector<EngineState> states_;
  SequenceId next_id_ = 1;
};

SupervisionConfig impatient(double hang_timeout, double step_timeout) {
  SupervisionConfig supervision;
  supervision.hang_timeout = hang_timeout * kTimeScale;
  supervision.step_timeout = step_timeout * kTimeScale;
  return supervision;
}

TEST(CoreManager, ServesAndEnds) {
  pid_t pid = 0;
  {
    Supervised core("serve");
    ASSERT_TRUE(core.status.ok()) << core.status.message();
    EXPECT_EQ(core.num_loading, 1);
    EXPECT_EQ(core.manager->health().state, EngineState::kReady);
    pid = core.manager->health().pid;
    EXPECT_EQ(children(), std::vector<pid_t>{pid});
    for (int i = 0; i < 100; ++i) core.ask();
    EXPECT_TRUE(eventually([&] { return core.num_steps == 100; }));
    core.manager.reset();
    EXPECT_EQ(core.states().back(), EngineState::kStopping);
  }
  EXPECT_FALSE(process_exists(pid));
  EXPECT_TRUE(children().empty());
}

TEST(CoreManager, AFirstStartThatFailsIsAnErrorAndNotRepeated) {
  const Clock::time_point begin = Clock::now();
  EXPECT_EQ(Supervised("exit-loading").status.message(),
            "the engine died (exit code 3) while it started");
  const Status failed = Supervised("fail-loading").status;
  EXPECT_EQ(failed.code(), StatusCode::kNotFound);
  EXPECT_EQ(failed.message(), "the fake checkpoint is absent");
  EXPECT_LT(milliseconds_since(begin), 1000 * kTimeScale);
  EXPECT_TRUE(children().empty());
}

TEST(CoreManager, ADeathIsToldOnceAndTheNextLifeServes) {
  Supervised core("serve");
  core.ask();
  ASSERT_TRUE(eventually([&] { return core.num_steps == 1; }));
  const pid_t first = core.manager->health().pid;
  ::kill(first, SIGKILL);
  ASSERT_TRUE(eventually([&] { return core.num_ready == 2; }));
  ASSERT_TRUE(core.reaches(EngineState::kReady));
  EXPECT_EQ(core.lost(),
            std::vector<std::string>{"the engine died (signal 9: Killed) and is being restarted; "
                                     "the request was lost"});
  EXPECT_EQ(core.refusal(), "the engine is restarting");
  EXPECT_NE(core.manager->health().pid, first);
  EXPECT_EQ(core.manager->health().num_restarts, 1u);
  EXPECT_EQ(core.num_loading, 1);
  core.ask();
  EXPECT_TRUE(eventually([&] { return core.num_steps == 2; }));
  EXPECT_EQ(children().size(), 1u);
}

// The folder of this process's sockets, which are in /tmp without XDG_RUNTIME_DIR.
std::filesystem::path socket_folder() {
  const char* parent = std::getenv("XDG_RUNTIME_DIR");
  const std::string prefix = fmt::format("atom-engine.{}.", ::getpid());
  for (const char* candidate : {parent == nullptr ? "/tmp" : parent, "/tmp"}) {
    for (const auto& entry : std::filesystem::directory_iterator(candidate)) {
      if (entry.path().filename().string().starts_with(prefix)) return entry.path();
    }
  }
  return {};
}

TEST(CoreManager, ANewFolderReplacesOneThatWasTakenAway) {
  Supervised core("serve");
  const std::filesystem::path folder = socket_folder();
  ASSERT_FALSE(folder.empty());
  for (const bool renamed : {false, true}) {
    const std::filesystem::path now = socket_folder();
    if (renamed) {
      std::filesystem::rename(now, folder.string() + "-away");
    } else {
      std::filesystem::remove_all(now);
    }
    const int num_ready = core.num_ready;
    ::kill(core.manager->health().pid, SIGKILL);
    ASSERT_TRUE(eventually([&] { return core.num_ready > num_ready; }));
    const int num_steps = core.num_steps;
    core.ask();
    EXPECT_TRUE(eventually([&] { return core.num_steps > num_steps; }));
    EXPECT_NE(socket_folder(), now);
  }
  std::filesystem::remove_all(folder.string() + "-away");
}

TEST(CoreManager, ALargeProcessIsMournedBeforeItsMemoryIsFreed) {
  Supervised core("grow-when-asked");
  core.ask();
  ASSERT_TRUE(eventually([&] { return core.num_steps == 1; }));
  ASSERT_TRUE(core.reaches(EngineState::kReady));
  const pid_t pid = core.manager->health().pid;
  const Clock::time_point killed = Clock::now();
  ::kill(pid, SIGKILL);
  ASSERT_TRUE(eventually([&] { return !core.lost().empty(); }));
  const double noticed = milliseconds_since(killed);
  ASSERT_TRUE(eventually([&] { return core.num_ready == 2; }));
  EXPECT_LE(noticed, 100 * kTimeScale);
  EXPECT_THAT(core.lost()[0], HasSubstr("signal 9: Killed"));
  EXPECT_FALSE(process_exists(pid));
  std::printf(
      "1 GiB: noticed after %.1f ms, ready after %.0f ms\n", noticed, milliseconds_since(killed));
}

TEST(CoreManager, GivesUpAfterRestartsThatServeNothing) {
  SupervisionConfig supervision;
  supervision.max_restarts = 3;
  Supervised core("die-when-asked", supervision);
  for (int death = 1; death <= 3; ++death) {
    core.ask();
    ASSERT_TRUE(eventually([&] { return core.num_ready == 1 + death; }));
  }
  core.ask();
  ASSERT_TRUE(core.reaches(EngineState::kFailed));
  const EngineHealth health = core.manager->health();
  EXPECT_THAT(health.reason, HasSubstr("signal 9: Killed"));
  EXPECT_THAT(health.reason, HasSubstr("3 restarts in a row served nothing"));
  EXPECT_EQ(health.num_restarts, 3u);
  EXPECT_EQ(health.pid, 0);
  ASSERT_TRUE(eventually([&] { return core.lost().size() == 4; }));
  EXPECT_EQ(core.refusal(), health.reason);
  EXPECT_TRUE(eventually([] { return children().empty(); }));
  core.ask();  // dropped
}

TEST(CoreManager, AFaultThatTheCoreReportsIsADeath) {
  Supervised core("fail-when-asked");
  core.ask();
  ASSERT_TRUE(eventually([&] { return core.num_ready == 2; }));
  EXPECT_THAT(core.lost()[0], HasSubstr("a fake fault"));
}

TEST(CoreManager, SilenceIsSeenAndInTheEndFatal) {
  Supervised core("hang-when-asked", impatient(0.5, 300));
  core.ask();
  ASSERT_TRUE(core.reaches(EngineState::kUnresponsive));
  EXPECT_EQ(core.lost().size(), 0u);
  ASSERT_TRUE(eventually([&] { return core.num_ready == 2; }));
  EXPECT_THAT(core.lost()[0], HasSubstr("was silent for"));
  EXPECT_GE(core.manager->health().num_unresponsive, 1u);
}

TEST(CoreManager, AStepWithoutProgressIsFatal) {
  Supervised core("stuck-when-asked", impatient(10, 0.5));
  const Clock::time_point begin = Clock::now();
  core.ask();
  ASSERT_TRUE(eventually([&] { return core.num_ready == 2; }));
  EXPECT_GE(milliseconds_since(begin), 500);
  EXPECT_THAT(core.lost()[0], HasSubstr("no progress on a step for"));
}

TEST(CoreManager, WhatIsNoMessageIsIgnored) {
  Supervised core("babble");
  ASSERT_TRUE(core.status.ok()) << core.status.message();
  core.ask();
  EXPECT_TRUE(eventually([&] { return core.num_steps == 1; }));
}

TEST(CoreManager, ACoreThatDoesNotEndIsKilledInTime) {
  SupervisionConfig supervision;
  supervision.shutdown_timeout = 0.2;
  const auto core = std::make_unique<Supervised>("hang-when-asked", supervision);
  core->ask();
  ASSERT_TRUE(core->reaches(EngineState::kUnresponsive));
  const Clock::time_point begin = Clock::now();
  core->manager.reset();
  EXPECT_GE(milliseconds_since(begin), 190);
  EXPECT_LT(milliseconds_since(begin), 1000 * kTimeScale);
  EXPECT_TRUE(children().empty());
}

TEST(CoreManager, CanBeDestroyedAtAnyTime) {
  for (int round = 0; round < 20; ++round) {
    Supervised core("die-when-asked");
    ASSERT_TRUE(core.status.ok()) << core.status.message();
    core.ask();
    std::this_thread::sleep_for(milliseconds(round));
  }
  EXPECT_TRUE(children().empty());
}

}  // namespace
}  // namespace atom
