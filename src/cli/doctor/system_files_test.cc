#include "cli/doctor/system_files.h"

#include <gtest/gtest.h>

#include "cli/doctor/fake_system.h"

namespace atom::cli::doctor {
namespace {

TEST(SystemFiles, ReadsFieldsOfEverySpelling) {
  const FakeSystem system({{"/a",
                            "model name\t: Some CPU @ 2 GHz\nmodel\t: 7\nNAME=\"x y\"\n"
                            "MemTotal:       16 kB\nplain value\n"},
                           {"/b", ""}});
  EXPECT_EQ(system.files().read_field("/a", "model name"), "Some CPU @ 2 GHz");
  EXPECT_EQ(system.files().read_field("/a", "model"), "7");
  EXPECT_EQ(system.files().read_field("/a", "NAME="), "\"x y\"");
  EXPECT_EQ(system.files().read_field("/a", "MemTotal"), "16 kB");
  EXPECT_EQ(system.files().read_field("/a", "plain"), "");
  EXPECT_EQ(system.files().read_field("/a", "plai"), "");
  EXPECT_EQ(system.files().read_field("/none", "plain"), "");
}

TEST(SystemFiles, ReadsIntegersAndNothingElse) {
  const FakeSystem system({{"/n", "42\n"}, {"/max", "max\n"}, {"/two", "1 2\n"}, {"/e", ""}});
  EXPECT_EQ(system.files().read_integer("/n"), 42);
  for (const char* path : {"/max", "/two", "/e", "/none", "/"}) {
    EXPECT_FALSE(system.files().read_integer(path)) << path;
  }
}

TEST(SystemFiles, AbsentAndOddThingsAreEmpty) {
  const FakeSystem system({{"/d/b", "1"}, {"/d/a", "2"}});
  EXPECT_EQ(system.files().list("/d"), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(system.files().list("/none").empty());
  EXPECT_TRUE(system.files().list("/d/a").empty());
  EXPECT_EQ(system.files().read("/d"), "");
  EXPECT_TRUE(system.files().exists("/d/a"));
  EXPECT_FALSE(system.files().exists("/d/c"));
}

}  // namespace
}  // namespace atom::cli::doctor
