#include "server/json_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/utf8.h"

namespace atom::server {
namespace {

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(&out, text);
  return out;
}

std::string logprob(float value) {
  std::string out;
  append_json_logprob(&out, value);
  return out;
}

TEST(JsonText, Strings) {
  EXPECT_EQ(json_string(""), R"("")");
  EXPECT_EQ(json_string("a \"b\" \\ /\n\r\t"), R"("a \"b\" \\ /\n\r\t")");
  EXPECT_EQ(json_string("Zürich 🎉\x7f"), "\"Zürich 🎉\x7f\"");
  EXPECT_EQ(json_string(std::string_view("\0\x1f", 2)), R"("\u0000\u001f")");
  EXPECT_EQ(json_string("a\xff\xc3"), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"");
  EXPECT_EQ(json_string("\xed\xa0\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

TEST(JsonText, EveryPairOfBytesIsReadBack) {
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text = {static_cast<char>(first), static_cast<char>(second)};
      const OrderedJson json = OrderedJson::parse(json_string(text), nullptr, false);
      ASSERT_TRUE(json.is_string()) << first << " " << second;
      EXPECT_EQ(json.get<std::string>(), to_valid_utf8(text));
    }
  }
}

TEST(JsonText, Logprobs) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(logprob(-0.5f), "-0.5");
  EXPECT_EQ(logprob(0), "0");
  EXPECT_EQ(logprob(-1e-40f), "-1e-40");
  for (const float value : {-kInfinity, kInfinity, std::nanf(""), -1e30f}) {
    EXPECT_EQ(logprob(value), "-9999");
  }
}

}  // namespace
}  // namespace atom::server
