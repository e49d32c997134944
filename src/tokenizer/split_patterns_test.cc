// The hand-written matchers against PCRE2 running the same pattern.
#include "tokenizer/split_patterns.h"

#include <gtest/gtest.h>

#include <random>

#include "tokenizer/unicode.h"

namespace atom {
namespace {

// Characters of every class, with those that the patterns name.
const std::vector<std::string>& alphabet() {
  static const std::vector<std::string> characters = [] {
    std::vector<std::string> all = {"'",  "'s", "'S", "'ſ", "'t", "'RE", "'ll", "'lL", "'ve",
                                    "'m", "'d", "r",  "v",  "l",  "e",   "\r",  "\n",  "\r\n",
                                    " ",  " ",  "  ", "\t", "/",  "\\",  "[",   "]",   "^"};
    for (char32_t c = 0; c < 0x80; ++c) append_utf8(c, &all.emplace_back());
    const char32_t points[] = {
        0x85,   0xA0,   0x1680, 0x2003,  0x2028,  0x202F, 0x3000,            // white space
        0x200B, 0x200D, 0xFEFF, 0xAD,    0x378,   0xE000, 0x10FFFF,          // no class
        0xC9,   0x130,  0x410,  0x1E9E,  0x10400, 0x1C5,  0x1F88,            // Lu, Lt
        0xE9,   0xDF,   0x17F,  0x430,   0x10428, 0x131,                     // Ll
        0x2B0,  0x2C6,  0x3005, 0xE46,   0xAA,    0x5D0,  0x623,    0xAC00,  // Lm, Lo
        0x4E00, 0x9FA5, 0x9FA6, 0x3040,  0x3041,  0x309F, 0x30A0,   0x30FF,
        0x3100, 0x300,  0x301,  0x93E,   0x20DD,  0xFE0F, 0xE0100,  // M
        0x661,  0x2167, 0xBD,   0xB2,    0x1D7D9, 0x3007,           // N
        0x2026, 0x201C, 0x203F, 0x2014,  0xA1,    0x3001,           // P
        0x20AC, 0xD7,   0xA8,   0x1F600, 0x1F3FD, 0xA9,             // S
    };
    for (const char32_t c : points) append_utf8(c, &all.emplace_back());
    return all;
  }();
  return characters;
}

std::string random_text(std::mt19937& random) {
  std::string text;
  const size_t length = random() % 24;
  // A few different characters at a time make the runs that the patterns are about.
  std::vector<const std::string*> some;
  for (int i = 0; i < 6; ++i) some.push_back(&alphabet()[random() % alphabet().size()]);
  for (size_t i = 0; i < length; ++i) text += *some[random() % some.size()];
  return text;
}

std::vector<std::string> cut(const std::string& text, const std::vector<TextSpan>& spans) {
  std::vector<std::string> parts;
  for (const TextSpan& span : spans) parts.push_back(text.substr(span.begin, span.size()));
  return parts;
}

TEST(SplitPatterns, HandWrittenMatchersAgreeWithPcre2) {
  for (const std::string& pattern : hand_written_patterns()) {
    const auto regex = Regex::compile(pattern);
    ASSERT_TRUE(regex.ok()) << regex.status().message();
    const auto matcher = make_regex_pattern(pattern);
    ASSERT_TRUE(matcher.ok());
    std::mt19937 random(5);
    for (int round = 0; round < 20000; ++round) {
      const std::string text = random_text(random);
      std::vector<TextSpan> expected, actual;
      ASSERT_TRUE(regex->find_all(text, &expected).ok());
      ASSERT_TRUE((*matcher)->find_all(text, &actual).ok());
      ASSERT_EQ(cut(text, actual), cut(text, expected)) << pattern << "\non: " << text;
    }
  }
}

TEST(SplitPatterns, RefusesAnInvalidRegex) {
  const auto pattern = make_regex_pattern("a(b");
  ASSERT_FALSE(pattern.ok());
  EXPECT_NE(pattern.status().message().find("a(b"), std::string::npos);
}

TEST(Regex, CatastrophicPatternIsAnErrorNotAHang) {
  const auto regex = Regex::compile("(a+)+$");
  ASSERT_TRUE(regex.ok());
  std::vector<TextSpan> matches;
  const Status status = regex->find_all(std::string(60, 'a') + "b", &matches);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
}

TEST(Regex, LeavesOutEmptyMatches) {
  const auto regex = Regex::compile("é*");
  ASSERT_TRUE(regex.ok());
  std::vector<TextSpan> matches;
  const std::string text = "xéé世é";
  ASSERT_TRUE(regex->find_all(text, &matches).ok());
  EXPECT_EQ(cut(text, matches), (std::vector<std::string>{"éé", "é"}));
}

}  // namespace
}  // namespace atom
