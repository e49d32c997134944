// Test support: what a family's parsers should make of an answer, cut in every way.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/parsers/parse_answer_test.h"

namespace atom::server {

using Calls = std::vector<std::pair<std::string, std::string>>;

struct Case {
  std::string text;
  std::string reasoning;
  std::string content;
  Calls calls = {};
};

class Family {
 public:
  Family(const std::string& tools, const std::string& reasoning, std::string prompt_tail = "")
      : format_(format_named(tools, reasoning)),
        setup_{format_.get(), std::move(prompt_tail), &test_tools()} {}

  Family& without_tools() {
    setup_.tools = nullptr;
    return *this;
  }

  void check(const Case& expected) const {
    const ParsedAnswer answer = parse_in_every_way(setup_, expected.text);
    EXPECT_EQ(answer.reasoning, expected.reasoning) << expected.text;
    EXPECT_EQ(answer.content, expected.content) << expected.text;
    Calls calls;
    for (const ParsedCall& call : answer.calls) calls.emplace_back(call.name, call.arguments);
    EXPECT_EQ(calls, expected.calls) << expected.text;
  }

  ParsedAnswer parse(std::string_view text) const { return parse_in_every_way(setup_, text); }

 private:
  std::unique_ptr<OutputFormat> format_;
  ParseSetup setup_;
};

}  // namespace atom::server
