#include "structured_output/pattern_limits.h"

#include <gtest/gtest.h>

namespace atom {
namespace {

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(PatternLimits, CountsWhatRepetitionsStandFor) {
  for (const std::string pattern : {"a",
                                    "[a-z]{1,64}",
                                    "(ab|c){0,1000}",
                                    "a{4000}b{4000}",
                                    "((a{1,20}){1,20}){1,20}",
                                    "\\{9999999\\}",
                                    "[{9999999}]"}) {
    EXPECT_TRUE(check_regex_size(pattern, "regex").ok()) << pattern;
  }
  for (const std::string pattern : {"((a{1,1000}){1,1000})",
                                    "a{8193}",
                                    "a{99999999999999999999}",
                                    "(a|b){5000}",
                                    "((((a{9}){9}){9}){9}){9}",
                                    "a{90}{91}{92}"}) {
    const Status status = check_regex_size(pattern, "structured_outputs.regex");
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << pattern;
    EXPECT_NE(status.message().find("structured_outputs.regex: "), std::string::npos);
  }
}

TEST(PatternLimits, LongTextsAreRefused) {
  EXPECT_TRUE(check_regex_size(std::string(4'000, 'a'), "regex").ok());
  EXPECT_FALSE(check_regex_size(std::string(kMaxPatternBytes + 1, 'a'), "regex").ok());
  EXPECT_FALSE(check_ebnf_size(std::string(kMaxGrammarBytes + 1, ' '), "grammar").ok());
}

TEST(PatternLimits, TextsOfGrammarsAreNotRepetitions) {
  EXPECT_TRUE(check_ebnf_size("root ::= \"{9999999}\" # {9999999}\n", "grammar").ok());
  EXPECT_TRUE(check_ebnf_size("root ::= [{9999999}]+", "grammar").ok());
  EXPECT_FALSE(check_ebnf_size("root ::= (\"ab\" x){5000}\nx ::= \"a\"", "grammar").ok());
}

// Anything is counted in one pass without a stack that input could exhaust.
TEST(PatternLimits, UnbalancedTexts) {
  for (const std::string text : {"(", ")", "]", "{", "}", "\\", "[\\", "[", "{}", "a{", "\""}) {
    (void)check_regex_size(repeated(text, 2'000), "regex");
    (void)check_ebnf_size(repeated(text, 2'000), "grammar");
  }
  EXPECT_TRUE(check_regex_size(repeated("(", 4'000), "regex").ok());
}

}  // namespace
}  // namespace atom
