#include "server/parsers/parse_answer_test.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace atom::server {

std::string to_string(const ParsedAnswer& answer) {
  std::string text = fmt::format("reasoning: {}\ncontent: {}\n", answer.reasoning, answer.content);
  for (const ParsedCall& call : answer.calls) {
    text += fmt::format("call: {} {} {}\n", call.id, call.name, call.arguments);
  }
  return text;
}

const OrderedJson& test_tools() {
  static const OrderedJson tools = OrderedJson::parse(R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
      "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
                     "unit": {"enum": ["celsius", "fahrenheit"]}}}}},
    {"type": "function", "function": {"name": "search", "parameters": {"type": "object",
      "properties": {"query": {"type": "string"}, "filters": {"type": "array"}}}}},
    {"type": "function", "function": {"name": "edit", "parameters": {"type": "object",
      "properties": {"path": {"type": "string"}, "text": {"type": "string"},
                     "force": {"type": "boolean"}, "ratio": {"type": "number"},
                     "note": {"type": ["string", "null"]}, "free": {},
                     "place": {"$ref": "#/$defs/Place"}},
      "$defs": {"Place": {"type": "object", "properties": {"x": {"type": "number"}}}}}}},
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object",
      "properties": {}}}}
  ])");
  return tools;
}

ParsedAnswer parse_pieces(const ParseSetup& setup, const std::vector<std::string_view>& pieces) {
  ParsedAnswer answer;
  const auto parser = setup.format->make_parser(setup.prompt_tail, setup.tools, 7);
  const auto add = [&](const OutputDelta& delta) {
    answer.reasoning += delta.reasoning;
    answer.content += delta.content;
    for (const ToolCallDelta& call : delta.tool_calls) {
      const auto index = static_cast<size_t>(call.index);
      if (index == answer.calls.size()) {
        EXPECT_FALSE(call.id.empty());
        EXPECT_FALSE(call.name.empty());
        answer.calls.push_back({call.name, call.arguments, call.id});
      } else {
        EXPECT_EQ(index + 1, answer.calls.size());
        if (index + 1 != answer.calls.size()) continue;
        EXPECT_TRUE(call.id.empty() && call.name.empty());
        EXPECT_FALSE(call.arguments.empty());
        answer.calls.back().arguments += call.arguments;
      }
    }
    EXPECT_EQ(parser->has_tool_calls(), !answer.calls.empty());
  };
  for (const std::string_view piece : pieces) add(parser->feed(piece));
  add(parser->finish());
  return answer;
}

ParsedAnswer parse_in_every_way(const ParseSetup& setup, std::string_view text) {
  const ParsedAnswer whole = parse_pieces(setup, {text});
  const std::string expected = to_string(whole);
  const auto check = [&](const std::vector<std::string_view>& pieces, const std::string& how) {
    const std::string actual = to_string(parse_pieces(setup, pieces));
    EXPECT_EQ(actual, expected) << setup.format->name() << " " << how << " of:\n" << text;
    return actual == expected;
  };
  for (size_t i = 0; i <= text.size(); ++i) {
    if (!check({text.substr(0, i), text.substr(i)}, fmt::format("cut at {}", i))) return whole;
  }
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
  if (!check(bytes, "byte by byte")) return whole;
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::string_view> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + random() % (round < 25 ? 6 : 30);
      pieces.push_back(text.substr(at, size));
      at += size;
    }
    if (!check(pieces, fmt::format("random cut {}", round))) return whole;
  }
  return whole;
}

std::unique_ptr<OutputFormat> format_named(const std::string& tools, const std::string& reasoning) {
  auto format = make_output_format({tools, reasoning}, "");
  EXPECT_TRUE(format.ok()) << format.status().message();
  return std::move(format).value();
}

}  // namespace atom::server
