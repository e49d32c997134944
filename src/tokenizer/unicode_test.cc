// UTF-8, character classes and normal forms against utf8proc's own functions.
#include "tokenizer/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>

#include "tokenizer/byte_level.h"
#include "tokenizer/normal_form.h"

namespace atom {
namespace {

std::string oracle_normalize(const std::string& text, NormalForm form) {
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compat = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const int options = UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                      (compat ? UTF8PROC_COMPAT : 0);
  utf8proc_uint8_t* out = nullptr;
  const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                   static_cast<utf8proc_ssize_t>(text.size()),
                                   &out,
                                   static_cast<utf8proc_option_t>(options));
  std::string result(reinterpret_cast<char*>(out), length);
  std::free(out);
  return result;
}

TEST(NormalForms, AgreeWithUtf8proc) {
  const std::pair<char32_t, char32_t> ranges[] = {{0x41, 0x7A},
                                                  {0xA0, 0x24F},
                                                  {0x300, 0x36F},
                                                  {0x390, 0x3C9},
                                                  {0x620, 0x65F},
                                                  {0x900, 0x97F},
                                                  {0x9C0, 0x9DF},
                                                  {0x1100, 0x11FF},
                                                  {0xAC00, 0xAC40},
                                                  {0x1E00, 0x1EFF},
                                                  {0x2120, 0x212F},
                                                  {0x3040, 0x30FF},
                                                  {0xF900, 0xFA2D},
                                                  {0xFB00, 0xFB4F},
                                                  {0xFDF0, 0xFDFF},
                                                  {0x1D150, 0x1D170},
                                                  {0x2F800, 0x2F810},
                                                  {0x4E00, 0x4E20},
                                                  {0x110A0, 0x110BA}};
  std::mt19937 random(2);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    const size_t length = random() % 16;
    const size_t num_ranges = 1 + random() % 3;
    size_t picked[3];
    for (size_t& pick : picked) pick = random() % std::size(ranges);
    for (size_t i = 0; i < length; ++i) {
      const auto [low, high] = ranges[picked[random() % num_ranges]];
      append_utf8(low + random() % (high - low + 1), &text);
    }
    for (const NormalForm form :
         {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd}) {
      const std::string expected = oracle_normalize(text, form);
      ASSERT_EQ(normalize(text, form), expected) << text;
      ASSERT_TRUE(!is_surely_normalized(text, form) || text == expected) << text;
    }
  }
}

TEST(NormalForms, LongRunsOfMarksTakeLinearithmicTime) {
  std::string text = "a";
  for (int i = 0; i < 200000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0316";
  EXPECT_EQ(normalize(text, NormalForm::kNfc).size(), text.size() - 1);
}

TEST(Utf8, SanitizesMaximalSubparts) {
  EXPECT_EQ(sanitize_utf8("a\xE4\xBD"
                          "b"),
            "a\uFFFDb");
  EXPECT_EQ(sanitize_utf8("\xF0\x9F\x98"), "\uFFFD");
  EXPECT_EQ(sanitize_utf8("\xC0\xAF"), "\uFFFD\uFFFD");
  EXPECT_EQ(sanitize_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(sanitize_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(sanitize_utf8("é世😀\xFF"), "é世😀\uFFFD");
  EXPECT_TRUE(is_valid_utf8("0123456789é世😀"));
  EXPECT_FALSE(is_valid_utf8("0123456789\x80"));
}

TEST(UnicodeTables, ClassesOfSomeCharacters) {
  const UnicodeTables& tables = UnicodeTables::get();
  EXPECT_EQ(tables.classes('A'), kLetter | kUpperTitle);
  EXPECT_EQ(tables.classes(0x1C5), kLetter | kUpperTitle);
  EXPECT_EQ(tables.classes(0x17F), kLetter | kLower);
  EXPECT_EQ(tables.classes(0x4E2D), kLetter);
  EXPECT_EQ(tables.classes(0x2167), kNumber);
  EXPECT_EQ(tables.classes(0x85), kSpace);
  EXPECT_EQ(tables.classes(0x180E), 0);
  EXPECT_EQ(tables.classes('$'), kSymbol);
  EXPECT_EQ(tables.classes(0xE0100), kMark);
  EXPECT_EQ(tables.classes(0x10FFFF), 0);
}

TEST(ByteLevelAlphabet, MapsAllBytesBothWays) {
  const ByteLevelAlphabet& alphabet = ByteLevelAlphabet::get();
  EXPECT_EQ(alphabet.to_char(0x00), 0x100u);
  EXPECT_EQ(alphabet.to_char(0x20), 0x120u);
  EXPECT_EQ(alphabet.to_char(0x7F), 0x121u);
  EXPECT_EQ(alphabet.to_char(0xAD), 0x143u);
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(alphabet.to_byte(alphabet.to_char(static_cast<uint8_t>(byte))), byte);
  }
  EXPECT_EQ(alphabet.to_byte(' '), -1);
  EXPECT_EQ(alphabet.to_byte(0x144), -1);
}

}  // namespace
}  // namespace atom
