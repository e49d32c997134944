#include "server/openai/logprobs_json.h"

#include <gtest/gtest.h>

namespace atom::server {
namespace {

std::vector<int64_t> offsets(const std::vector<std::string>& pieces) {
  CharacterCounter counter;
  std::vector<int64_t> begins;
  for (const std::string& piece : pieces) begins.push_back(counter.add(piece));
  begins.push_back(counter.count());
  return begins;
}

using Offsets = std::vector<int64_t>;

TEST(CharacterCounter, CountsCharactersAndNotBytes) {
  EXPECT_EQ(offsets({"ab", "\xC3\xA9", "c"}), (Offsets{0, 2, 3, 4}));
  EXPECT_EQ(offsets({"", "a", "", "b"}), (Offsets{0, 0, 1, 1, 2}));
}

TEST(CharacterCounter, APieceThatCompletesACharacterBeginsWithinIt) {
  EXPECT_EQ(offsets({"\xF0\x9F", "\x9A", "\x80x", "y"}), (Offsets{0, 0, 0, 2, 3}));
}

TEST(CharacterCounter, WhatIsNoUtf8CountsAsItsReplacement) {
  // The text is U+FFFD, `, /`.
  EXPECT_EQ(offsets({"\xF0", "`", "/`"}), (Offsets{0, 1, 2, 4}));
  EXPECT_EQ(offsets({"\xF0"}), (Offsets{0, 1}));
  EXPECT_EQ(offsets({"\x80", "\xFF\xFF", "a"}), (Offsets{0, 1, 3, 4}));
}

TEST(CompletionLogprobs, NamesTokensByIdWithoutATokenizer) {
  const TokenSpelling spelling(nullptr, /*by_id=*/false);
  EXPECT_EQ(spelling.text(7, /*skips_special_tokens=*/false), "");
  CompletionLogprobs logprobs;
  const TokenLogprobs entries = {{.token_id = 7, .logprob = -1, .rank = 2},
                                 {.token_id = 9, .logprob = -0.5f, .rank = 1}};
  logprobs.append(7, "", entries, spelling);
  std::string json;
  logprobs.flush(&json);
  EXPECT_EQ(json,
            R"({"text_offset":[0],"token_logprobs":[-1],"tokens":["token_id:7"],)"
            R"("top_logprobs":[{"token_id:9":-0.5,"token_id:7":-1}]})");
  json.clear();
  append_prompt_logprobs(std::span(&entries, 1), nullptr, &json);
  EXPECT_EQ(json,
            R"([null,{"7":{"logprob":-1,"rank":2,"decoded_token":null},)"
            R"("9":{"logprob":-0.5,"rank":1,"decoded_token":null}}])");
}

}  // namespace
}  // namespace atom::server
