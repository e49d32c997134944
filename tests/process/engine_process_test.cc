// The engine with its core in a process of its own: its beginning, its end and what it answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "base/check.h"
#include "tests/process/engine_harness_test.h"

namespace atom {
namespace {

using ::testing::HasSubstr;

std::vector<Prompt> prompts(size_t count) {
  std::vector<Prompt> result;
  for (size_t i = 0; i < count; ++i) {
    std::vector<int32_t> ids;
    for (size_t k = 0; k <= i % 7; ++k) ids.push_back(static_cast<int32_t>(5 + 31 * i + k));
    result.emplace_back(std::move(ids));
  }
  return result;
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
