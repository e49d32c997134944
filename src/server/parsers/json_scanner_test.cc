#include "server/parsers/json_scanner.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace atom::server {
namespace {

// Whether `text` is one value and nothing behind it, taken in pieces of `size`.
bool scan_accepts(std::string_view text, size_t size) {
  JsonScanner scanner;
  for (size_t at = 0; at < text.size(); at += size) {
    const std::string_view piece = text.substr(at, size);
    const size_t used = scanner.scan(piece);
    if (used == piece.size()) continue;
    return scanner.status() == JsonStatus::kDone &&
           text.find_first_not_of(" \t\r\n", at + used) == std::string_view::npos;
  }
  scanner.end();
  return scanner.status() == JsonStatus::kDone;
}

TEST(JsonScanner, AcceptsWhatIsJson) {
  for (const std::string_view text :
       {"{}",
        "[]",
        " { \"a\" : [ 1 , -0.5e+3, {\"b\": null}, true, false, \"\" ] }",
        "0",
        "-12",
        "1E5",
        "\"\\u00e9\\\\\\\"\"",
        "[[],{}]",
        "null",
        "\"é\""}) {
    EXPECT_TRUE(scan_accepts(text, 1)) << text;
    EXPECT_TRUE(scan_accepts(text, 100)) << text;
  }
  for (const std::string_view text :
       {"",      "{",   "{]",  "[1,]",  "{\"a\"}", "{\"a\":}", "{\"a\":1,}",  "{1:2}",  "01",
        "-",     "1.",  ".5",  "1e",    "+1",      "\"\\x\"",  "\"\\u12g4\"", "\"\n\"", "nul",
        "nulls", "tru", "'a'", "[1 2]", "}",       "NaN",      "{\"a\":1}}",  "\""}) {
    EXPECT_FALSE(scan_accepts(text, 1)) << text;
    EXPECT_FALSE(scan_accepts(text, 100)) << text;
  }
}

// Random texts of JSON's alphabet: the same verdict as another parser's.
TEST(JsonScanner, AgreesWithAnotherParser) {
  constexpr std::string_view kParts[] = {"{",
                                         "}",
                                         "[",
                                         "]",
                                         ":",
                                         ",",
                                         "\"a\"",
                                         "\"",
                                         "1",
                                         "-",
                                         "0",
                                         ".",
                                         "e",
                                         " ",
                                         "true",
                                         "null",
                                         "\\n",
                                         "\\u0041"};
  std::mt19937 random(3);
  int num_right = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string text;
    const size_t num_parts = 1 + random() % 8;
    for (size_t i = 0; i < num_parts; ++i) text += kParts[random() % std::size(kParts)];
    const bool right = nlohmann::json::accept(text);
    num_right += right;
    ASSERT_EQ(scan_accepts(text, 1 + random() % 5), right) << text;
  }
  EXPECT_GT(num_right, 1000);
}

TEST(JsonScanner, StopsAtTheEndOfTheValue) {
  JsonScanner object;
  EXPECT_EQ(object.scan("{\"a\": \"}\"}}"), 10);
  EXPECT_EQ(object.status(), JsonStatus::kDone);
  JsonScanner number;
  EXPECT_EQ(number.scan("12,"), 2);
  EXPECT_EQ(number.status(), JsonStatus::kDone);
  JsonScanner deep;
  EXPECT_EQ(deep.scan(std::string(1000, '[')), JsonScanner::kMaxDepth);
  EXPECT_EQ(deep.status(), JsonStatus::kBad);
}

std::string decode(std::string_view text, size_t size, JsonStatus expected = JsonStatus::kDone) {
  JsonStringDecoder decoder;
  std::string out;
  for (size_t at = 0; at < text.size(); at += size) decoder.decode(text.substr(at, size), &out);
  EXPECT_EQ(decoder.status(), expected) << text;
  return out;
}

TEST(JsonStringDecoder, Escapes) {
  for (const size_t size : {1, 2, 3, 100}) {
    EXPECT_EQ(decode(R"(a\n\t\"\\\/\b\f\r é")", size), "a\n\t\"\\/\b\f\r é");
    EXPECT_EQ(decode(R"(\u0041\u00e9\u20ac\ud83c\udf89")", size), "Aé€🎉");
    EXPECT_EQ(decode(R"(\ud83cx\udf89\ud83c\ud83c\udf89\ud83c")", size), "�x��🎉�");
  }
  decode("a\n", 1, JsonStatus::kBad);
  decode("\\x", 1, JsonStatus::kBad);
  decode("\\u00g", 1, JsonStatus::kBad);
  decode("abc", 1, JsonStatus::kOpen);
}

TEST(AppendJsonEscaped, IsReadBackAsItWas) {
  std::string text;
  for (int c = 0; c < 128; ++c) text.push_back(static_cast<char>(c));
  text += "é🎉\"\\";
  std::string json = "\"";
  append_json_escaped(text, &json);
  EXPECT_EQ(nlohmann::json::parse(json + "\"").get<std::string>(), text);
}

}  // namespace
}  // namespace atom::server
