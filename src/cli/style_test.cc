#include "cli/style.h"

#include <gtest/gtest.h>

namespace atom::cli {
namespace {

TEST(Style, WrapsOnlyWhenEnabled) {
  EXPECT_EQ(Style(true).red("x"), "\x1b[31mx\x1b[0m");
  EXPECT_EQ(Style(true).red(""), "");
  EXPECT_EQ(Style(false).red("x"), "x");
}

TEST(Style, IsOffForAFile) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  EXPECT_FALSE(Style::for_stream(file).enabled());
  std::fclose(file);
}

TEST(Printable, RemovesWhatDrivesATerminal) {
  EXPECT_EQ(printable("model.layers.0"), "model.layers.0");
  EXPECT_EQ(printable("a\x1b[2Jb\x7f"), "a?[2Jb?");
  EXPECT_EQ(printable("a\xc2\x9b"
                      "2Jb"),
            "a?2Jb");
  EXPECT_EQ(printable("caf\xc3\xa9 \xc2\xa0 \xf0\x9f\x98\x80"),
            "caf\xc3\xa9 \xc2\xa0 \xf0\x9f\x98\x80");
  EXPECT_EQ(printable("a\n\tb\r"), "a??b?");
  EXPECT_EQ(printable("a\n\tb\r", true), "a\n\tb?");
}

}  // namespace
}  // namespace atom::cli
