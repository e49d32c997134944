#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>

#include "tests/support/test_folders.h"
#include "tokenizer/tokenizer.h"

namespace atom {
namespace {

using Ids = std::vector<int32_t>;

std::string base64(std::string_view bytes) {
  constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 3; ++j) {
      group = group << 8 | (j < count ? static_cast<uint8_t>(bytes[i + j]) : 0);
    }
    for (size_t j = 0; j < 4; ++j) {
      text.push_back(j <= count ? kAlphabet[group >> (18 - 6 * j) & 63] : '=');
    }
  }
  return text;
}

// All bytes, backwards, then `tokens`.
std::vector<std::string> with_bytes(const std::vector<std::string>& tokens) {
  std::vector<std::string> all;
  for (int byte = 255; byte >= 0; --byte) all.emplace_back(1, static_cast<char>(byte));
  all.insert(all.end(), tokens.begin(), tokens.end());
  return all;
}

std::string model_of(const std::vector<std::string>& tokens) {
  std::string text;
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    text += fmt::format("{} {}\n", base64(tokens[rank]), rank);
  }
  return text;
}

Result<std::shared_ptr<const Tokenizer>> load(const std::string& model,
                                              const std::string& config = "{}") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("tiktoken.model")) << model;
  std::ofstream(folder.file("tokenizer_config.json")) << config;
  return Tokenizer::load(folder.path());
}

std::shared_ptr<const Tokenizer> tokenizer_of(const std::vector<std::string>& tokens,
                                              const std::string& config = "{}") {
  Result<std::shared_ptr<const Tokenizer>> tokenizer = load(model_of(with_bytes(tokens)), config);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return *tokenizer;
}

// The pieces of a text that is all tokens' parts, as texts.
std::vector<std::string> pieces_of(const Tokenizer& tokenizer, std::string_view text) {
  const Result<Ids> ids = tokenizer.encode(text, true);
  EXPECT_TRUE(ids.ok());
  std::vector<std::string> pieces;
  for (const int32_t id : *ids) pieces.push_back(tokenizer.token_bytes(id));
  return pieces;
}

// By its definition: whatever two neighbors make a token of the lowest rank become it, the leftmost
// first.
Ids naive_ids(const std::map<std::string, int32_t>& ranks, const std::string& text) {
  if (const auto whole = ranks.find(text); whole != ranks.end()) return {whole->second};
  std::vector<std::string> parts;
  for (const char c : text) parts.emplace_back(1, c);
  for (;;) {
    int32_t best = INT32_MAX;
    size_t at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto it = ranks.find(parts[i] + parts[i + 1]);
      if (it == ranks.end() || it->second >= best) continue;
      best = it->second;
      at = i;
    }
    if (best == INT32_MAX) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(ranks.at(part));
  return ids;
}

TEST(TiktokenModel, MergesByTheRankOfTheResult) {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    std::map<std::string, int32_t> ranks;
    std::vector<std::string> tokens;
    for (int i = 0; i < 40; ++i) {
      std::string token;
      for (size_t size = 2 + random() % 4; token.size() < size;) {
        token.push_back(static_cast<char>('a' + random() % 3));
      }
      if (ranks.emplace(token, 256 + static_cast<int32_t>(tokens.size())).second) {
        tokens.push_back(token);
      }
    }
    for (int byte = 0; byte < 256; ++byte)
      ranks[std::string(1, static_cast<char>(byte))] = 255 - byte;
    const auto tokenizer = tokenizer_of(tokens);
    for (int i = 0; i < 40; ++i) {
      std::string text;
      // Short and long texts take different ways.
      for (size_t size = 1 + random() % (i % 2 == 0 ? 20 : 120); text.size() < size;) {
        text.push_back(static_cast<char>('a' + random() % 3));
      }
      const Result<Ids> ids = tokenizer->encode(text, true);
      ASSERT_TRUE(ids.ok());
      ASSERT_EQ(*ids, naive_ids(ranks, text)) << text;
      ASSERT_EQ(tokenizer->decode(*ids, false), text);
    }
  }
}

// Tokens that pieces must not merge across show where a text is split.
TEST(TiktokenModel, SplitsTextsAsKimiDoes) {
  const auto tokenizer = tokenizer_of({"ab",
                                       "b1",
                                       "12",
                                       "123",
                                       "1234",
                                       "a ",
                                       " a",
                                       "ab'",
                                       "'s",
                                       "你好",
                                       "好a",
                                       "a你",
                                       "!\n",
                                       "\n\n",
                                       "  ",
                                       "B a",
                                       "aB"});
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces_of(*tokenizer, "ab1"), (Pieces{"ab", "1"}));
  EXPECT_EQ(pieces_of(*tokenizer, "1234"), (Pieces{"123", "4"}));
  // What is contracted stays with its word, and a space goes with the word after it.
  EXPECT_EQ(pieces_of(*tokenizer, "ab's"), (Pieces{"ab'", "s"}));
  EXPECT_EQ(pieces_of(*tokenizer, "a a"), (Pieces{"a", " a"}));
  EXPECT_EQ(pieces_of(*tokenizer, "你好a你好"), (Pieces{"你好", "a", "你好"}));
  EXPECT_EQ(pieces_of(*tokenizer, "a!\n\nb"), (Pieces{"a", "!\n", "\n", "b"}));
  // A small letter ends a word before a capital one.
  EXPECT_EQ(pieces_of(*tokenizer, "aB"), (Pieces{"a", "B"}));
  EXPECT_EQ(tokenizer->decode(*tokenizer->encode("日本語 text, ünï", true), false),
            "日本語 text, ünï");
}

TEST(TiktokenModel, IdsAfterTheLastRankAreSpecial) {
  const std::string config =
      R"({"bos_token": "[BOS]", "eos_token": "[EOS]", "added_tokens_decoder": {
        "258": {"content": "[BOS]", "special": true},
        "259": {"content": "[EOS]", "special": true},
        "262": {"content": "<|im_end|>", "special": true}}})";
  const auto tokenizer = tokenizer_of({"ab", "abc"}, config);
  EXPECT_EQ(tokenizer->bos_token_id(), 258);
  EXPECT_EQ(tokenizer->eos_token_id(), 259);
  EXPECT_EQ(tokenizer->vocab_size(), 258 + 256);
  EXPECT_EQ(*tokenizer->encode("abc<|im_end|>ab<|reserved_token_260|>", true),
            (Ids{257, 262, 256, 260}));
  EXPECT_EQ(tokenizer->decode(Ids{258, 256, 262, 513}, true), "ab");
  EXPECT_EQ(tokenizer->decode(Ids{256, 513}, false), "ab<|reserved_token_513|>");
}

TEST(TiktokenModel, RefusesWhatIsWrongByItsLine) {
  const std::string bytes = model_of(with_bytes({}));
  const auto error_of = [&](const std::string& text) {
    const auto tokenizer = load(text);
    return tokenizer.ok() ? std::string("no error") : tokenizer.status().message();
  };
  for (const char* line : {"YWI",
                           "YWI=",
                           "YWI=256",
                           "YWI= x",
                           "YWI= -1",
                           "Y?I= 256",
                           "= 256",
                           "YWI= 99999999",
                           "YWI= 256 1",
                           " 256"}) {
    const std::string message = error_of(bytes + line + "\n");
    EXPECT_NE(message.find("tiktoken.model:257"), std::string::npos) << line << ": " << message;
  }
  EXPECT_NE(error_of(bytes + "YWI= 255\n").find("255"), std::string::npos);
  EXPECT_NE(error_of(bytes + "YWI= 256\nYWI= 257\n").find("ab"), std::string::npos);
  EXPECT_NE(error_of("YWI= 0\n").find("bytes"), std::string::npos);
  EXPECT_NE(error_of("").find("bytes"), std::string::npos);
  // Long tokens whose parts would be looked up for minutes.
  std::string long_tokens = bytes;
  for (int i = 0; i < 16; ++i) {
    long_tokens += fmt::format("{} {}\n", base64(std::string(9999 + i, 'a')), 256 + i);
  }
  EXPECT_NE(error_of(long_tokens).find("too long"), std::string::npos);
}

}  // namespace
}  // namespace atom
