#include "base/child_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <thread>

namespace atom {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

ChildProcess start(const std::vector<std::string>& arguments) {
  Result<ChildProcess> child = ChildProcess::start(arguments[0], arguments);
  CHECK(child.ok());
  return std::move(child).value();
}

// A script that waits does so by exec: what the shell starts outlives it, with the test's output
// open, for whose end the test's runner waits.
ChildProcess shell(const std::string& script) {
  return start({"/bin/sh", "-c", script});
}

bool exists(pid_t pid) {
  return ::kill(pid, 0) == 0;
}

TEST(ChildProcess, SaysHowItEnded) {
  ChildProcess child = shell("exit 3");
  ASSERT_TRUE(child.wait(milliseconds(10000)));
  EXPECT_EQ(child.how_it_ended(), "exit code 3");
  ChildProcess killed = shell("exec sleep 60");
  EXPECT_FALSE(killed.wait(milliseconds(20)));
  EXPECT_FALSE(killed.is_dying());
  killed.kill();
  ASSERT_TRUE(killed.wait(milliseconds(10000)));
  EXPECT_EQ(killed.how_it_ended(), "signal 9: Killed");
  EXPECT_TRUE(killed.is_dying());
  killed.kill();  // harmless
}

TEST(ChildProcess, TellsBeforeItIsReaped) {
  ChildProcess child = shell("exec sleep 60");
  child.kill();
  while (!child.is_dying()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(child.how_it_ended(), "signal 9: Killed");
  ChildProcess exits = shell("exit 3");
  while (!exits.is_dying()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(exits.how_it_ended(), "exit code 3");
}

TEST(ChildProcess, WhatCannotBeExecutedIsAnErrorAndLeavesNothing) {
  const Result<ChildProcess> child = ChildProcess::start("/nonexistent/atom", {"atom"});
  ASSERT_FALSE(child.ok());
  EXPECT_THAT(child.status().message(), HasSubstr("/nonexistent/atom"));
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
}

TEST(ChildProcess, EndIsSeenByPollingItsDescriptor) {
  const ChildProcess child = shell("exit 0");
  pollfd ended{child.exit_fd(), POLLIN, 0};
  if (child.exit_fd() < 0) GTEST_SKIP() << "this kernel has no pidfd_open";
  EXPECT_EQ(::poll(&ended, 1, 10000), 1);
}

TEST(ChildProcess, DestructionKillsAndReaps) {
  pid_t pid = 0;
  {
    const ChildProcess child = shell("exec sleep 60");
    pid = child.pid();
    EXPECT_TRUE(exists(pid));
  }
  EXPECT_FALSE(exists(pid));
}

TEST(ChildProcess, EndsWithTheThreadThatStartedIt) {
  std::optional<ChildProcess> child;
  std::thread([&] { child.emplace(shell("exec sleep 60")); }).join();
  ASSERT_TRUE(child->wait(milliseconds(10000)));
  EXPECT_EQ(child->how_it_ended(), "signal 9: Killed");
}

TEST(ChildProcess, InheritsNothingButTheLifeline) {
  // What a careless library might leave open.
  const FileDescriptor careless(::fcntl(STDERR_FILENO, F_DUPFD, 50));
  ChildProcess child = shell("[ -p /proc/$$/fd/3 ] && [ ! -e /proc/$$/fd/" +
                             std::to_string(careless.get()) + " ] && [ ! -s /dev/stdin ]");
  ASSERT_TRUE(child.wait(milliseconds(10000)));
  EXPECT_EQ(child.how_it_ended(), "exit code 0");
}

TEST(ChildProcess, HasNoSecretsInItsEnvironment) {
  ::setenv("HF_TOKEN", "t", 1);
  ::setenv("ATOM_API_KEY", "k", 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
  ::setenv("ATOM_TEST_PLAIN", "plain", 1);
  ChildProcess child = shell(
      "[ -z \"$HF_TOKEN$ATOM_API_KEY$AWS_SECRET_ACCESS_KEY\" ] && [ \"$ATOM_TEST_PLAIN\" = plain "
      "]");
  for (const char* name :
       {"HF_TOKEN", "ATOM_API_KEY", "AWS_SECRET_ACCESS_KEY", "ATOM_TEST_PLAIN"}) {
    ::unsetenv(name);
  }
  ASSERT_TRUE(child.wait(milliseconds(10000)));
  EXPECT_EQ(child.how_it_ended(), "exit code 0");
}

TEST(ChildProcess, SignalsAreAsAtTheStartButForThoseOfTheGroup) {
  // In this process: SIGUSR1 blocked, SIGUSR2 ignored.
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  std::signal(SIGUSR2, SIG_IGN);
  ChildProcess child = shell(
      "[ $(sed -n 's/^SigBlk:\\t//p' /proc/$$/status) = 0000000000000000 ] && "
      "[ $(sed -n 's/^SigIgn:\\t//p' /proc/$$/status) = 0000000000004003 ]");
  std::signal(SIGUSR2, SIG_DFL);
  ::pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr);
  ASSERT_TRUE(child.wait(milliseconds(10000)));
  EXPECT_EQ(child.how_it_ended(), "exit code 0");
}

TEST(ChildProcess, OnlyAPipeIsALifeline) {
  EXPECT_FALSE(exit_with_parent(-1));
  EXPECT_FALSE(exit_with_parent(1000000));
}

}  // namespace
}  // namespace atom
