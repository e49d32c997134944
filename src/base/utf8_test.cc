#include "base/utf8.h"

#include <gtest/gtest.h>

namespace atom {
namespace {

TEST(Utf8, KeepsWhatIsValid) {
  for (std::string_view text : {"",
                                "a\nb",
                                "\xc3\xa4",
                                "\xe2\x82\xac",
                                "\xef\xbf\xbd",
                                "\xed\x9f\xbf",
                                "\xee\x80\x80",
                                "\xf0\x9f\x98\x80",
                                "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(to_valid_utf8(text), text);
  }
  EXPECT_EQ(to_valid_utf8(std::string_view("a\0b", 3)), std::string_view("a\0b", 3));
}

TEST(Utf8, ReplacesEachBadByte) {
  const std::string bad = "\xef\xbf\xbd";
  EXPECT_EQ(to_valid_utf8("a\xff"
                          "b"),
            "a" + bad + "b");
  EXPECT_EQ(to_valid_utf8("\x80"), bad);
  EXPECT_EQ(to_valid_utf8("\xc0\xaf"), bad + bad);                      // overlong '/'
  EXPECT_EQ(to_valid_utf8("\xe0\x80\xaf"), bad + bad + bad);            // overlong
  EXPECT_EQ(to_valid_utf8("\xed\xa0\x80"), bad + bad + bad);            // surrogate
  EXPECT_EQ(to_valid_utf8("\xf4\x90\x80\x80"), bad + bad + bad + bad);  // beyond U+10FFFF
  EXPECT_EQ(to_valid_utf8("x\xe2\x82"), "x" + bad + bad);               // cut short
  EXPECT_EQ(to_valid_utf8("\xe2\x82\xc3\xa4"), bad + bad + "\xc3\xa4");
}

}  // namespace
}  // namespace atom
