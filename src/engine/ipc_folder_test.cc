#include "engine/ipc_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/test_folders.h"

namespace atom {
namespace {

namespace fs = std::filesystem;

size_t num_entries(const std::string& folder) {
  const fs::directory_iterator entries(folder);
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

TEST(IpcFolder, IsPrivateAndRemovedWithWhatItHolds) {
  const TemporaryFolder parent;
  {
    const auto folder = IpcFolder::create(parent.path()).value();
    struct stat info {};
    ASSERT_EQ(::stat(folder->path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
    EXPECT_TRUE(folder->path().starts_with(parent.path() + "/"));
    std::ofstream(folder->path() + "/requests-0") << "x";
  }
  EXPECT_EQ(num_entries(parent.path()), 0u);
}

TEST(IpcFolder, LeavesTheFoldersOfTheLivingAlone) {
  const TemporaryFolder parent;
  const auto first = IpcFolder::create(parent.path()).value();
  const auto second = IpcFolder::create(parent.path()).value();
  EXPECT_TRUE(fs::exists(first->path()));
  EXPECT_NE(first->path(), second->path());
}

TEST(IpcFolder, RemovesWhatTheKilledLeftAndNothingElse) {
  const TemporaryFolder parent;
  const pid_t pid = ::fork();
  if (pid == 0) {
    const auto folder = IpcFolder::create(parent.path());
    if (folder.ok()) std::ofstream(folder.value()->path() + "/responses-3") << "x";
    ::_exit(0);  // without the destructor
  }
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
  ASSERT_EQ(num_entries(parent.path()), 1u);
  fs::create_directory(parent.file("atom-engine.1.unlocked"));
  fs::create_directory(parent.file("another"));
  std::ofstream(parent.file("atom-engine.file")) << "x";
  const TemporaryFolder elsewhere;
  std::ofstream(elsewhere.file("lock")) << "";
  fs::create_directory_symlink(elsewhere.path(), parent.file("atom-engine.link"));

  const auto folder = IpcFolder::create(parent.path()).value();
  EXPECT_EQ(num_entries(parent.path()), 5u);
  EXPECT_TRUE(fs::exists(folder->path()));
  EXPECT_TRUE(fs::exists(elsewhere.file("lock")));
}

TEST(IpcFolder, UnusableParentsGiveWayToTmp) {
  const TemporaryFolder parent;
  fs::create_directory(parent.file(std::string(100, 'x')));
  for (const std::string& unusable : {std::string(),
                                      std::string("relative"),
                                      parent.file("absent"),
                                      parent.file(std::string(100, 'x'))}) {
    const auto folder = IpcFolder::create(unusable).value();
    EXPECT_TRUE(folder->path().starts_with("/tmp/atom-engine.")) << unusable;
  }
}

TEST(IpcFolder, OfTheLivingStaysWhateverIsCleanedInIt) {
  const TemporaryFolder parent;
  const auto first = IpcFolder::create(parent.path()).value();
  std::ofstream(first->path() + "/requests-0") << "x";
  for (const auto& entry : fs::directory_iterator(first->path())) {
    if (entry.path().filename() != "requests-0") fs::remove(entry.path());
  }
  const auto second = IpcFolder::create(parent.path()).value();
  EXPECT_TRUE(fs::exists(first->path() + "/requests-0"));
  EXPECT_TRUE(first->is_intact());
}

TEST(IpcFolder, SeesThatItIsGone) {
  const TemporaryFolder parent;
  const auto folder = IpcFolder::create(parent.path()).value();
  EXPECT_TRUE(folder->is_intact());
  fs::rename(folder->path(), parent.file("renamed"));
  EXPECT_FALSE(folder->is_intact());
  fs::create_directory(folder->path());
  EXPECT_FALSE(folder->is_intact());
}

TEST(IpcFolder, NoParentThatOthersMayWriteTo) {
  const TemporaryFolder parent;
  ASSERT_EQ(::chmod(parent.path().c_str(), 0777), 0);
  EXPECT_TRUE(IpcFolder::create(parent.path()).value()->path().starts_with("/tmp/atom-engine."));
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chmod(parent.path().c_str(), 0700), 0);
  ASSERT_EQ(::chown(parent.path().c_str(), 12345, 12345), 0);
  EXPECT_TRUE(IpcFolder::create(parent.path()).value()->path().starts_with("/tmp/atom-engine."));
}

}  // namespace
}  // namespace atom
