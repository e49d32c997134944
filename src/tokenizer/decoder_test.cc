// Decoders, whole and streamed, on tokens that no encoding would give.
#include "tokenizer/decoder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tokenizer/unicode.h"

namespace atom {
namespace {

Decoder make(const char* json) {
  auto decoder = Decoder::parse(Json::parse(json), "decoder");
  CHECK(decoder.ok());
  return std::move(decoder).value();
}

std::string decode(const Decoder& decoder, const std::vector<std::string>& tokens) {
  DecoderState state = decoder.start();
  std::string text;
  for (const std::string& token : tokens) {
    const size_t before = text.size();
    decoder.push(token, &state, &text);
    EXPECT_TRUE(is_valid_utf8(std::string_view(text).substr(before)));
  }
  decoder.finish(&state, &text);
  return text;
}

constexpr const char* kLlama2 = R"({"type": "Sequence", "decoders": [
  {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
  {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";

TEST(Decoder, ByteLevelJoinsBytesOverTokens) {
  const Decoder decoder = make(R"({"type": "ByteLevel"})");
  EXPECT_EQ(decode(decoder, {"ä¸", "Ń", "Ġa"}), "中 a");
  // Maximal subparts: one replacement for the two bytes of a cut character.
  EXPECT_EQ(decode(decoder, {"ä¸", "a"}), "\uFFFDa");
  EXPECT_EQ(decode(decoder, {"a", "ä¸"}), "a\uFFFD");
  EXPECT_EQ(decode(decoder, {"Ń", "Ń"}), "\uFFFD\uFFFD");
  // A token with a character outside the alphabet is its own text.
  EXPECT_EQ(decode(decoder, {"<｜User｜>", "a b"}), "<｜User｜>a b");
  EXPECT_EQ(decoder.token_bytes("ä¸"), "\xE4\xB8");
  EXPECT_EQ(decoder.token_bytes("Ġthe"), " the");
}

TEST(Decoder, ByteFallbackReplacesByteByByte) {
  const Decoder decoder = make(kLlama2);
  EXPECT_EQ(decode(decoder, {"▁▁a", "▁b"}), " a b");
  EXPECT_EQ(decode(decoder, {"<0x20>", "<0x20>", "a"}), " a");
  EXPECT_EQ(decode(decoder, {"<0xE4>", "<0xB8>", "<0xAD>", "x"}), "中x");
  EXPECT_EQ(decode(decoder, {"<0xE4>", "<0xB8>", "x"}), "\uFFFD\uFFFDx");
  EXPECT_EQ(decode(decoder, {"<0xE4>", "<0xE4>", "<0xB8>", "<0xAD>"}), "\uFFFD中");
  EXPECT_EQ(decode(decoder, {"<0xff>", "<0xG0>", "<0x1>"}), "\uFFFD<0xG0><0x1>");
  EXPECT_EQ(decoder.token_bytes("▁the"), " the");
  EXPECT_EQ(decoder.token_bytes("<0x0A>"), "\n");
}

TEST(Decoder, StripOfTheRunningTextHoldsBackItsEnd) {
  const Decoder decoder = make(R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
    {"type": "Strip", "content": "_", "start": 2, "stop": 2}]})");
  EXPECT_EQ(decode(decoder, {"_", "__a_", "_", "_b_", "_", "_"}), "_a___b_");
  EXPECT_EQ(decode(decoder, {"_", "_"}), "");
}

TEST(Decoder, StripOfTokens) {
  const Decoder decoder = make(R"({"type": "Strip", "content": "é", "start": 1, "stop": 1})");
  EXPECT_EQ(decode(decoder, {"ééaéé", "é", "b"}), "éaéb");
}

TEST(Decoder, ReplaceInTheRunningTextCrossesTokens) {
  const Decoder decoder = make(R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
    {"type": "Replace", "pattern": {"String": "aab"}, "content": "-"}]})");
  EXPECT_EQ(decode(decoder, {"a", "a", "a", "b", "xa", "a"}), "a-xaa");
}

TEST(Decoder, MetaspaceDropsTheFirstTokensMarks) {
  EXPECT_EQ(decode(make(R"({"type": "Metaspace", "prepend_scheme": "first"})"), {"▁a", "▁b"}),
            "a b");
  EXPECT_EQ(decode(make(R"({"type": "Metaspace", "prepend_scheme": "never"})"), {"▁a", "▁b"}),
            " a b");
}

TEST(Decoder, NoDecoderJoinsWithSpaces) {
  EXPECT_EQ(decode(make("null"), {"a", "b", ""}), "a b ");
}

TEST(Decoder, UnknownKindsAreNamed) {
  for (const char* json : {R"({"type": "WordPiece"})",
                           R"({"type": "CTC"})",
                           R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
                               {"type": "ByteFallback"}]})"}) {
    const auto decoder = Decoder::parse(Json::parse(json), "here");
    ASSERT_FALSE(decoder.ok());
    EXPECT_EQ(decoder.status().code(), StatusCode::kUnimplemented);
    EXPECT_NE(decoder.status().message().find("here"), std::string::npos);
  }
}

// Random byte tokens: the characters that are whole survive, whatever stands around them.
TEST(Decoder, RandomBytesGiveValidText) {
  const Decoder decoder = make(kLlama2);
  std::mt19937 random(3);
  const char* const bytes[] = {"<0xE4>", "<0xB8>", "<0xAD>", "<0xF0>", "<0x9F>", "<0x41>", "x"};
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> tokens;
    std::string raw;
    for (size_t i = random() % 12; i > 0; --i) tokens.emplace_back(bytes[random() % 7]);
    const std::string text = decode(decoder, tokens);
    EXPECT_TRUE(is_valid_utf8(text));
    EXPECT_LE(count_code_points(text), tokens.size());
  }
}

}  // namespace
}  // namespace atom
