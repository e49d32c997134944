#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

namespace atom {
namespace {

TEST(File, FifosAndDevicesAreRefusedAtOnce) {
  std::string folder = std::filesystem::temp_directory_path() / "atom-file-test.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string fifo = folder + "/config.json";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, std::string("/dev/zero"), folder}) {
    EXPECT_NE(read_file(path, 100).status().message().find("not a regular file"), std::string::npos)
        << path;
    EXPECT_FALSE(FileBytes::open(path, true).ok()) << path;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace atom
