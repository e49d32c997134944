// tokenizer.model files, written here byte by byte as protobuf messages.
#include "tokenizer/sentencepiece_model.h"

#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <fstream>

#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace atom {
namespace {

using Ids = std::vector<int32_t>;

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}
std::string varint_field(int field, uint64_t value) {
  return varint(field << 3) + varint(value);
}
std::string bytes_field(int field, const std::string& bytes) {
  return varint(field << 3 | 2) + varint(bytes.size()) + bytes;
}
std::string float_field(int field, float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  std::string bytes = varint(field << 3 | 5);
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(bits >> (8 * i)));
  return bytes;
}

enum PieceType { kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6 };

std::string piece(const std::string& text, float score, PieceType type) {
  return bytes_field(1, bytes_field(1, text) + float_field(2, score) + varint_field(3, type));
}

// Like Llama 2: BPE with byte fallback, a dummy prefix and no normalization. Ids: 0 <unk>, 1 <s>,
// 2 </s>, 3-258 bytes, then 259 ▁, 260 a, 261 b, 262 ▁a, 263 ab, 264 ▁ab.
std::string small_model() {
  std::string model =
      piece("<unk>", 0, kUnknown) + piece("<s>", 0, kControl) + piece("</s>", 0, kControl);
  for (int byte = 0; byte < 256; ++byte) model += piece(fmt::format("<0x{:02X}>", byte), 0, kByte);
  model += piece("▁", -10, kNormal) + piece("a", -11, kNormal) + piece("b", -12, kNormal) +
           piece("▁a", -2, kNormal) + piece("ab", -1, kNormal) + piece("▁ab", -3, kNormal);
  const std::string trainer_spec = varint_field(3, 2) + varint_field(35, 1);
  const std::string normalizer_spec =
      bytes_field(1, "identity") + varint_field(3, 1) + varint_field(4, 0) + varint_field(5, 1);
  return model + bytes_field(2, trainer_spec) + bytes_field(3, normalizer_spec);
}

std::shared_ptr<const Tokenizer> load(const std::string& model, const std::string& config) {
  const std::string folder = testing::TempDir() + "/atom_sentencepiece_model";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/tokenizer.model", std::ios::binary) << model;
  if (!config.empty()) std::ofstream(folder + "/tokenizer_config.json") << config;
  const auto tokenizer = Tokenizer::load(folder);
  std::filesystem::remove_all(folder);
  if (!tokenizer.ok()) {
    ADD_FAILURE() << tokenizer.status().message();
    return nullptr;
  }
  return *tokenizer;
}

TEST(SentencePieceModel, EncodesAndDecodes) {
  const auto tokenizer = load(small_model(), "");
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->vocab_size(), 265);
  EXPECT_EQ(tokenizer->encode("ab b", false).value(), (Ids{264, 259, 261}));
  EXPECT_EQ(tokenizer->encode("ab", true).value(), (Ids{1, 264}));
  EXPECT_EQ(tokenizer->encode("é", false).value(), (Ids{259, 0xC3 + 3, 0xA9 + 3}));
  EXPECT_EQ(tokenizer->encode("", false).value(), Ids{});
  EXPECT_EQ(tokenizer->decode(Ids{1, 264, 259, 261, 0xC3 + 3, 0xA9 + 3, 2}, true), "ab bé");
  EXPECT_EQ(tokenizer->decode(Ids{1, 264, 2}, false), "<s> ab</s>");
  EXPECT_EQ(tokenizer->bos_token_id(), 1);
  EXPECT_EQ(tokenizer->eos_token_id(), 2);
  EXPECT_EQ(tokenizer->special_tokens().at("unk_token"), "<unk>");
  EXPECT_EQ(tokenizer->token_bytes(262), " a");
  EXPECT_EQ(tokenizer->token_bytes(0xC3 + 3), "\xC3");
}

TEST(SentencePieceModel, ControlPiecesInTheTextAreTokens) {
  const auto tokenizer = load(small_model(), R"({"add_bos_token": false, "add_eos_token": true})");
  ASSERT_NE(tokenizer, nullptr);
  // Each segment gets its space: the legacy behavior.
  EXPECT_EQ(tokenizer->encode("a</s>a", true).value(), (Ids{262, 2, 262, 2}));
}

TEST(SentencePieceModel, WithoutLegacyOnlyTheStartGetsASpace) {
  const auto tokenizer = load(small_model(), R"({"legacy": false})");
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->encode("a</s>a", false).value(), (Ids{262, 2, 260}));
}

TEST(SentencePieceModel, StreamsWholeCharacters) {
  const auto tokenizer = load(small_model(), "");
  ASSERT_NE(tokenizer, nullptr);
  IncrementalDetokenizer detokenizer(tokenizer, true);
  EXPECT_EQ(detokenizer.append(262), "a");
  EXPECT_EQ(detokenizer.append(0xC3 + 3), "");
  EXPECT_EQ(detokenizer.append(0xA9 + 3), "é");
  EXPECT_EQ(detokenizer.append(0xC3 + 3), "");
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
}

TEST(SentencePieceModel, RefusesWhatIsNoModel) {
  for (const std::string& bytes : {std::string(),
                                   std::string("hello"),
                                   std::string(100, '\xFF'),
                                   small_model().substr(0, 500)}) {
    const auto model = SentencePieceModel::load(bytes, true, "tokenizer.model");
    if (model.ok()) continue;  // a cut model can be a smaller model
    EXPECT_NE(model.status().message().find("tokenizer.model"), std::string::npos);
  }
  EXPECT_FALSE(SentencePieceModel::load("hello", true, "x").ok());
}

}  // namespace
}  // namespace atom
