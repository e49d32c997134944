#include "base/log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <sstream>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/utf8.h"

namespace atom {
namespace {

class LogTest : public testing::Test {
 protected:
  void SetUp() override { log::set_level(log::Level::kInfo); }
  void TearDown() override {
    log::set_level(log::Level::kWarning);
    log::set_format(log::Format::kText);
  }
};

std::string logged(log::Format format, const std::function<void()>& write) {
  log::set_format(format);
  testing::internal::CaptureStderr();
  write();
  return testing::internal::GetCapturedStderr();
}

// The one object that was logged.
Json logged_json(const std::function<void()>& write) {
  const std::string text = logged(log::Format::kJson, write);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  const Result<Json> json = parse_json(text, text);
  EXPECT_TRUE(json.ok()) << json.status().message();
  return json.ok() ? *json : Json();
}

TEST_F(LogTest, TextHasLevelTimeAndMessage) {
  const std::string text = logged(log::Format::kText, [] { log::warning("free: {} GiB", 3); });
  EXPECT_TRUE(std::regex_match(text, std::regex(R"(W \d\d:\d\d:\d\d\.\d{3} free: 3 GiB\n)")))
      << text;
}

TEST_F(LogTest, TextQuotesFieldsThatNeedIt) {
  const std::string text = logged(log::Format::kText, [] {
    log::info_with({{"id", "a-1"},
                    {"path", "/a b"},
                    {"empty", ""},
                    {"status", 200},
                    {"ok", true},
                    {"seconds", 0.25},
                    {"evil", "x\nE 00:00:00.000 forged"}},
                   "done");
  });
  EXPECT_TRUE(
      text.ends_with(" done id=a-1 path=\"/a b\" empty=\"\" status=200 ok=true seconds=0.25 "
                     "evil=\"x\\nE 00:00:00.000 forged\"\n"))
      << text;
}

TEST_F(LogTest, TextIsOneLineWhateverTheMessage) {
  const std::string text =
      logged(log::Format::kText, [] { log::info("GET {}", "/\nE \x1b[31m\xff \"\\"); });
  EXPECT_TRUE(text.ends_with(" GET /\\nE \\u001b[31m\xef\xbf\xbd \"\\\n")) << text;
}

TEST_F(LogTest, WhatATerminalObeysOrHidesIsEscaped) {
  const std::string active =
      "\xc2\x9b|\xc2\x85|\xe2\x80\xa8|\xe2\x80\xa9|\xe2\x80\xae|\xe2\x81\xa6|\xd8\x9c|\x7f";
  const std::string escaped = "\\u009b|\\u0085|\\u2028|\\u2029|\\u202e|\\u2066|\\u061c|\\u007f";
  const std::string harmless = "\xc2\xa0\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80";
  const std::string text = logged(log::Format::kText, [&] {
    log::info_with({{"path", active}}, "{}{}", active, harmless);
  });
  EXPECT_TRUE(text.ends_with(" " + escaped + harmless + " path=\"" + escaped + "\"\n")) << text;
  const Json json = logged_json([&] { log::info("{}", active); });
  EXPECT_EQ(json["message"], active);
}

TEST_F(LogTest, JsonHasTimeLevelMessageAndFields) {
  const std::string id = "req-1";
  const Json json = logged_json([&] {
    log::error_with({{"request_id", id},
                     {"status", 503},
                     {"bytes", uint64_t{1} << 63},
                     {"change", -5},
                     {"duration_ms", 1.5},
                     {"stream", false},
                     {"rate", std::nan("")},
                     {"limit", std::numeric_limits<double>::infinity()}},
                    "{} {}",
                    "GET",
                    "/x");
  });
  EXPECT_EQ(json["level"], "error");
  EXPECT_EQ(json["message"], "GET /x");
  EXPECT_EQ(json["request_id"], "req-1");
  EXPECT_EQ(json["status"], 503);
  EXPECT_EQ(json["bytes"], uint64_t{1} << 63);
  EXPECT_EQ(json["change"], -5);
  EXPECT_EQ(json["duration_ms"], 1.5);
  EXPECT_EQ(json["stream"], false);
  EXPECT_TRUE(json["rate"].is_null());
  EXPECT_TRUE(json["limit"].is_null());
}

TEST_F(LogTest, JsonTimeIsUtcNow) {
  const std::time_t before = std::time(nullptr);
  const std::string time = logged_json([] { log::info("x"); })["time"];
  ASSERT_TRUE(std::regex_match(time, std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)")));
  std::tm parts{};
  ASSERT_NE(strptime(time.c_str(), "%Y-%m-%dT%H:%M:%S", &parts), nullptr);
  const std::time_t logged_at = timegm(&parts);
  EXPECT_GE(logged_at, before);
  EXPECT_LE(logged_at, std::time(nullptr));
}

TEST_F(LogTest, JsonIsValidForAnyBytes) {
  std::mt19937 engine(1);
  std::vector<std::string> texts = {"",
                                    "\"",
                                    "\\",
                                    "\n",
                                    std::string("a\0b", 3),
                                    "\x7f\x1b[31m",
                                    "\xff\xfe",
                                    "\xed\xa0\x80",
                                    "\xe2\x82",
                                    "{}%v%^{0}"};
  for (int i = 0; i < 200; ++i) {
    std::string text;
    for (size_t size = engine() % 40; size > 0; --size) text += static_cast<char>(engine());
    texts.push_back(text);
  }
  for (const std::string& text : texts) {
    const Json json = logged_json([&] { log::info_with({{"field", text}}, "{}", text); });
    EXPECT_EQ(json["message"], to_valid_utf8(text));
    EXPECT_EQ(json["field"], to_valid_utf8(text));
  }
}

TEST_F(LogTest, LevelsAreHeld) {
  log::set_level(log::Level::kError);
  EXPECT_EQ(logged(log::Format::kJson,
                   [] {
                     log::warning("w");
                     log::info_with({{"a", 1}}, "i");
                   }),
            "");
  EXPECT_FALSE(logged(log::Format::kJson, [] { log::error("e"); }).empty());
}

TEST_F(LogTest, LinesOfThreadsStayWhole) {
  const std::string text = logged(log::Format::kJson, [] {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 3; ++thread) {
      threads.emplace_back([] {
        for (int i = 0; i < 100; ++i) log::info_with({{"i", i}}, "line");
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  std::istringstream lines(text);
  int num_lines = 0;
  for (std::string line; std::getline(lines, line); ++num_lines) {
    EXPECT_TRUE(parse_json(line, "line").ok()) << line;
  }
  EXPECT_EQ(num_lines, 300);
}

TEST(LogNames, UnknownOnesListTheKnown) {
  EXPECT_EQ(log::parse_format("json").value(), log::Format::kJson);
  EXPECT_EQ(log::parse_format("text").value(), log::Format::kText);
  EXPECT_NE(log::parse_format("xml").status().message().find("text or json"), std::string::npos);
  EXPECT_NE(log::parse_level("loud").status().message().find("debug"), std::string::npos);
}

}  // namespace
}  // namespace atom
