#include "tokenizer/added_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace atom {
namespace {

// The segments as text, tokens in brackets.
std::string split(const std::vector<AddedToken>& tokens, const std::string& text) {
  std::vector<std::string> patterns;
  for (const AddedToken& token : tokens) patterns.push_back(token.content);
  const AddedTokenMatcher matcher(tokens, patterns);
  std::vector<AddedTokenSegment> segments;
  matcher.split(text, &segments);
  std::string out;
  for (const AddedTokenSegment& segment : segments) {
    if (segment.token >= 0) {
      out.append("[").append(tokens[segment.token].content).append("]");
    } else {
      out.append("(").append(text, segment.begin, segment.end - segment.begin).append(")");
    }
  }
  return out;
}

std::vector<AddedToken> make_tokens(const std::vector<std::string>& contents) {
  std::vector<AddedToken> tokens;
  for (const std::string& content : contents) {
    AddedToken token;
    token.id = static_cast<int32_t>(tokens.size());
    token.content = content;
    tokens.push_back(token);
  }
  return tokens;
}

TEST(AddedTokens, LeftmostLongest) {
  const auto tokens = make_tokens({"ab", "abcd", "bcde", "", "x"});
  EXPECT_EQ(split(tokens, "abcde"), "[abcd](e)");
  EXPECT_EQ(split(tokens, "abcabx"), "[ab](c)[ab][x]");
  EXPECT_EQ(split(tokens, "zzz"), "(zzz)");
  EXPECT_EQ(split(tokens, ""), "");
}

TEST(AddedTokens, SingleWordsStandAlone) {
  auto tokens = make_tokens({"word"});
  tokens[0].single_word = true;
  EXPECT_EQ(split(tokens, "word sword word. words wordé _word 世word"),
            "[word]( sword )[word](. words wordé _word 世word)");
}

TEST(AddedTokens, StripsSwallowWhiteSpaceOnce) {
  auto tokens = make_tokens({"<t>", " "});
  tokens[0].lstrip = tokens[0].rstrip = true;
  // What an earlier match took is not swallowed again.
  EXPECT_EQ(split(tokens, "a \u3000<t>\n\tb"), "(a)[ ][<t>](b)");
  tokens.pop_back();
  EXPECT_EQ(split(tokens, "a \u3000<t>\n\tb<t>  <t>"), "(a)[<t>](b)[<t>][<t>]");
}

TEST(AddedTokens, AgreesWithTryingEveryPlace) {
  std::mt19937 random(4);
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> contents;
    for (size_t i = 1 + random() % 5; i > 0; --i) {
      std::string content;
      for (size_t k = 1 + random() % 4; k > 0; --k) content += "ab"[random() % 2];
      if (std::find(contents.begin(), contents.end(), content) == contents.end()) {
        contents.push_back(content);
      }
    }
    std::string text;
    for (size_t i = random() % 20; i > 0; --i) text += "abc"[random() % 3];
    std::string expected, gap;
    for (size_t i = 0; i < text.size();) {
      std::string best;
      for (const std::string& content : contents) {
        if (text.compare(i, content.size(), content) == 0 && content.size() > best.size()) {
          best = content;
        }
      }
      if (best.empty()) {
        gap += text[i++];
        continue;
      }
      if (!gap.empty()) expected.append("(").append(gap).append(")");
      gap.clear();
      expected.append("[").append(best).append("]");
      i += best.size();
    }
    if (!gap.empty()) expected.append("(").append(gap).append(")");
    ASSERT_EQ(split(make_tokens(contents), text), expected);
  }
}

TEST(AddedTokens, AlmostMatchesTakeLinearTime) {
  const auto tokens = make_tokens({std::string(20000, 'a') + "b", "c"});
  const std::string text(2'000'000, 'a');
  EXPECT_EQ(split(tokens, text).size(), text.size() + 2);
}

}  // namespace
}  // namespace atom
