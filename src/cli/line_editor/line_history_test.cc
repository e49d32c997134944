#include "cli/line_editor/line_history.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"

namespace atom::cli {
namespace {

class LineHistoryTest : public testing::Test {
 protected:
  LineHistoryTest() { std::filesystem::remove_all(folder_); }
  ~LineHistoryTest() override { std::filesystem::remove_all(folder_); }

  mode_t mode(const std::string& path) const {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0);
    return info.st_mode & 0777;
  }
  std::vector<std::string> loaded() const {
    LineHistory history(path_);
    EXPECT_TRUE(history.load().ok());
    return history.entries();
  }

  const std::string folder_ =
      testing::TempDir() + "atom_line_history_" + std::to_string(::getpid());
  const std::string path_ = folder_ + "/state/atom/chat_history";
};

TEST_F(LineHistoryTest, IsKeptForItsUserAlone) {
  EXPECT_EQ(loaded(), std::vector<std::string>());
  LineHistory history(path_);
  const std::vector<std::string> texts = {"one", "two\nlines \\n \\", "ä\t🚀"};
  for (const std::string& text : texts) EXPECT_TRUE(history.add(text).ok());
  EXPECT_EQ(loaded(), texts);
  EXPECT_EQ(mode(path_), 0600u);
  EXPECT_EQ(mode(std::filesystem::path(path_).parent_path()), 0700u);
}

TEST_F(LineHistoryTest, LeavesOutWhatIsNoNews) {
  LineHistory history(path_);
  const std::string huge(LineHistory::kMaxEntry + 1, 'x');
  for (const char* text : {"a", "a", "", "b", "a"}) EXPECT_TRUE(history.add(text).ok());
  EXPECT_TRUE(history.add(huge).ok());
  EXPECT_EQ(loaded(), std::vector<std::string>({"a", "b", "a"}));
}

TEST_F(LineHistoryTest, IsCutWhenItHasGrownLong) {
  LineHistory history(path_);
  for (size_t i = 0; i <= 2 * LineHistory::kMaxEntries; ++i) {
    ASSERT_TRUE(history.add(std::to_string(i)).ok());
  }
  const size_t before = std::filesystem::file_size(path_);
  EXPECT_EQ(loaded().size(), LineHistory::kMaxEntries);
  EXPECT_EQ(loaded().back(), std::to_string(2 * LineHistory::kMaxEntries));
  EXPECT_LT(std::filesystem::file_size(path_), before);
  EXPECT_EQ(mode(path_), 0600u);
}

TEST_F(LineHistoryTest, TakesNothingForKeysFromItsFile) {
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path());
  ASSERT_TRUE(write_file(path_, "a\x1b[31mb\xff\n").ok());
  EXPECT_EQ(loaded(), std::vector<std::string>({"a[31mb\xef\xbf\xbd"}));
}

TEST_F(LineHistoryTest, IsOfThisStartOnlyWithoutAPath) {
  LineHistory history;
  EXPECT_TRUE(history.load().ok());
  EXPECT_TRUE(history.add("a").ok());
  EXPECT_EQ(history.entries().size(), 1u);
}

}  // namespace
}  // namespace atom::cli
