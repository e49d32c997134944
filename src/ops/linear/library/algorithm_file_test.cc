#include "ops/linear/library/algorithm_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"

namespace atom::ops {
namespace {

class AlgorithmFile : public testing::Test {
 protected:
  ~AlgorithmFile() override { std::filesystem::remove_all(folder_); }

  Status read(const std::string& text) {
    EXPECT_TRUE(replace_file(path_, text).ok());
    return read_algorithms(path_, &table_);
  }

  const std::string folder_ =
      fmt::format("{}/algorithm_file_test.{}", testing::TempDir(), ::getpid());
  AlgorithmTable table_{"A card", "A library 1.2", {}};
  const std::string path_ = algorithm_file_path(folder_ + "/new", table_);
};

TEST_F(AlgorithmFile, ReturnsWhatWasWritten) {
  AlgorithmTable written = table_;
  written.fingerprints = {{"a", 0}, {"b", 0xfedcba9876543210u}};
  ASSERT_TRUE(write_algorithms(path_, written).ok());
  ASSERT_TRUE(read_algorithms(path_, &table_).ok());
  EXPECT_EQ(table_.fingerprints, written.fingerprints);
  // The file alone is left in its folder.
  int num_files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_ + "/new")) {
    ++num_files;
  }
  EXPECT_EQ(num_files, 1);
}

TEST_F(AlgorithmFile, IsAnotherOneForAnotherCardOrLibrary) {
  EXPECT_NE(path_, algorithm_file_path(folder_ + "/new", {"Another card", "A library 1.2", {}}));
  EXPECT_NE(path_, algorithm_file_path(folder_ + "/new", {"A card", "A library 1.3", {}}));
  AlgorithmTable other{"Another card", "A library 1.2", {}};
  ASSERT_TRUE(write_algorithms(path_, other).ok());
  EXPECT_FALSE(read_algorithms(path_, &table_).ok());
}

TEST_F(AlgorithmFile, RefusesWhateverElseLiesThere) {
  const std::string head = R"({"format":1,"card":"A card","library":"A library 1.2","algorithms":)";
  EXPECT_TRUE(read(head + R"({"k":"00ff"}})").ok());
  EXPECT_EQ(table_.fingerprints.at("k"), 0xffu);
  EXPECT_FALSE(read("").ok());
  EXPECT_FALSE(read("[]").ok());
  EXPECT_FALSE(read("{}").ok());
  EXPECT_FALSE(read(head + "[]}").ok());
  EXPECT_FALSE(read(head + R"({"k":5}})").ok());
  EXPECT_FALSE(read(head + R"({"k":"xyz"}})").ok());
  EXPECT_FALSE(read(head + R"({"k":"00112233445566778899"}})").ok());
  EXPECT_FALSE(read(head + R"({")" + std::string(1000, 'k') + R"(":"1"}})").ok());
  EXPECT_FALSE(
      read(R"({"format":2,"card":"A card","library":"A library 1.2","algorithms":{}})").ok());
  EXPECT_FALSE(read(R"({"format":"1","card":1,"library":2,"algorithms":{}})").ok());
  EXPECT_FALSE(read(std::string(size_t{9} << 20, ' ')).ok());
  // What was read before stays.
  EXPECT_EQ(table_.fingerprints.size(), 1u);
  EXPECT_FALSE(read_algorithms(folder_ + "/absent.json", &table_).ok());
}

}  // namespace
}  // namespace atom::ops
