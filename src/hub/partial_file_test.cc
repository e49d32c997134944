#include "hub/partial_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "hub/file_lock.h"
#include "tests/support/test_folders.h"

namespace atom::hub {
namespace {

namespace fs = std::filesystem;

class PartialFileTest : public testing::Test {
 protected:
  PartialFile open(uint64_t size, uint64_t segment_size, bool may_resume = true) {
    Result<PartialFile> file = PartialFile::open(path_, size, segment_size, may_resume);
    EXPECT_TRUE(file.ok()) << file.status().message();
    return *std::move(file);
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.file("blob.atom-incomplete");
};

TEST_F(PartialFileTest, SegmentsInAnyOrder) {
  PartialFile file = open(10, 4);
  ASSERT_EQ(file.segments().size(), 3u);
  EXPECT_TRUE(file.append(2, "ij").ok());
  EXPECT_TRUE(file.append(0, "ab").ok());
  EXPECT_TRUE(file.append(0, "cd").ok());
  EXPECT_FALSE(file.complete());
  EXPECT_TRUE(file.append(1, "efgh").ok());
  EXPECT_TRUE(file.complete());
  ASSERT_TRUE(file.publish(folder_.file("blob")).ok());
  EXPECT_EQ(*read_file(folder_.file("blob"), 100), "abcdefghij");
  EXPECT_FALSE(file_exists(path_));
}

TEST_F(PartialFileTest, MoreThanASegmentIsRefused) {
  PartialFile file = open(10, 4);
  EXPECT_FALSE(file.append(2, "ijk").ok());
  EXPECT_TRUE(file.append(2, "i").ok());
  EXPECT_FALSE(file.append(2, "jk").ok());
}

TEST_F(PartialFileTest, WhatWasSavedIsResumed) {
  {
    PartialFile file = open(10, 4);
    ASSERT_TRUE(file.append(1, "efg").ok());
    ASSERT_TRUE(file.append(2, "ij").ok());
    ASSERT_TRUE(file.save().ok());
  }
  // Another segment size: the journal's counts.
  PartialFile file = open(10, 3);
  ASSERT_EQ(file.segments().size(), 3u);
  EXPECT_EQ(file.segments()[0].done, 0u);
  EXPECT_EQ(file.segments()[1].done, 3u);
  EXPECT_EQ(file.segments()[2].done, 2u);
  EXPECT_EQ(open(10, 4, /*may_resume=*/false).bytes_done(), 0u);
}

TEST_F(PartialFileTest, APrefixIsResumed) {
  std::ofstream(path_) << "abcde";
  EXPECT_EQ(open(10, 4).bytes_done(), 5u);
  EXPECT_EQ(open(10, 4).bytes_done(), 5u) << "now from the journal";
  fs::remove(path_);
  std::ofstream(path_) << "abcdefghij";
  EXPECT_TRUE(open(10, 4).complete());
}

TEST_F(PartialFileTest, WhatIsNoJournalCountsForNothing) {
  for (const std::string& text :
       {std::string("abcdefghijk"), std::string(200, 'x'), std::string(34, '\0')}) {
    std::ofstream(path_, std::ios::trunc) << text;
    EXPECT_EQ(open(10, 4).bytes_done(), 0u);
  }
  // A journal that claims more than there can be.
  {
    PartialFile file = open(10, 4);
    ASSERT_TRUE(file.append(2, "ij").ok());
    ASSERT_TRUE(file.save().ok());
  }
  std::fstream file(path_, std::ios::in | std::ios::out);
  file.seekp(10 + 5 * 8);
  file.put(3);
  file.close();
  EXPECT_EQ(open(10, 4).bytes_done(), 0u);
}

TEST_F(PartialFileTest, AJournalOfAnotherSizeCountsForNothing) {
  {
    PartialFile file = open(10, 4);
    ASSERT_TRUE(file.append(0, "abcd").ok());
    ASSERT_TRUE(file.save().ok());
  }
  EXPECT_EQ(open(11, 4).bytes_done(), 0u);
}

TEST_F(PartialFileTest, RestartsAsAWhole) {
  PartialFile file = open(10, 4);
  ASSERT_TRUE(file.append(0, "abcd").ok());
  ASSERT_TRUE(file.restart(/*whole=*/true).ok());
  ASSERT_EQ(file.segments().size(), 1u);
  EXPECT_EQ(file.bytes_done(), 0u);
  EXPECT_TRUE(file.append(0, "abcdefghij").ok());
  EXPECT_TRUE(file.complete());
}

TEST_F(PartialFileTest, EmptyFilesAreComplete) {
  PartialFile file = open(0, 4);
  EXPECT_TRUE(file.complete());
  ASSERT_TRUE(file.publish(folder_.file("blob")).ok());
  EXPECT_EQ(*read_file(folder_.file("blob"), 100), "");
}

TEST_F(PartialFileTest, HugeFilesHaveBoundedJournals) {
  PartialFile file = open(uint64_t{1} << 40, 1 << 10);
  EXPECT_LE(file.segments().size(), size_t{1} << 20);
  EXPECT_LT(fs::file_size(path_), (uint64_t{1} << 40) + (uint64_t{9} << 20));
}

TEST_F(PartialFileTest, LinksAndFifosAreRefused) {
  const std::string victim = folder_.file("victim");
  ASSERT_TRUE(replace_file(victim, "precious").ok());
  const auto expect_refused = [&] {
    EXPECT_FALSE(PartialFile::open(path_, 10, 4, true).ok());
    EXPECT_FALSE(PartialFile::open(path_, 10, 4, false).ok());
    EXPECT_EQ(*read_file(victim, 100), "precious");
    fs::remove(path_);
  };
  fs::create_symlink(victim, path_);
  expect_refused();
  fs::create_symlink(folder_.file("not there yet"), path_);
  expect_refused();
  EXPECT_FALSE(file_exists(folder_.file("not there yet")));
  fs::create_hard_link(victim, path_);
  expect_refused();
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  expect_refused();
}

TEST_F(PartialFileTest, LocksFollowNoLinks) {
  const std::string victim = folder_.file("victim");
  fs::create_symlink(victim, path_);
  EXPECT_FALSE(FileLock::try_take(path_).ok());
  EXPECT_FALSE(file_exists(victim));
}

}  // namespace
}  // namespace atom::hub
