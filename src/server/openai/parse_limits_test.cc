// How many items the lists and objects of requests may have: up to the limit, and one more.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/openai/field_error.h"
#include "server/openai/parse_requests.h"

namespace atom::server {
namespace {

constexpr char kMessage[] = R"({"role": "user", "content": "x"})";

std::string repeated(const std::string& item, size_t count) {
  std::string list;
  for (size_t i = 0; i < count; ++i) list += (i == 0 ? "" : ",") + item;
  return list;
}

// "0": item, "1": item, ...
std::string members(const std::string& item, size_t count) {
  std::string object;
  for (size_t i = 0; i < count; ++i) {
    object += fmt::format("{}\"{}\": {}", i == 0 ? "" : ",", i, item);
  }
  return object;
}

template <typename T>
ApiError error_of(const Parsed<T>& parsed) {
  const auto* error = std::get_if<ApiError>(&parsed);
  return error == nullptr ? ApiError() : *error;
}

ApiError chat_error(const std::string& fields) {
  return error_of(parse_chat_completion_request("{" + fields + "}", {}));
}

ApiError completion_error(const std::string& fields) {
  return error_of(parse_completion_request("{" + fields + "}", {}));
}

struct ListLimit {
  size_t max_items;
  std::string item;
  std::string before;  // the body up to the list
  std::string behind;
  const char* param;
  const char* expected;
};

void expect_limit(const ListLimit& limit, ApiError (*error_of_body)(const std::string&)) {
  const auto error_with = [&](size_t count) {
    return error_of_body(limit.before + "[" + repeated(limit.item, count) + "]" + limit.behind);
  };
  EXPECT_EQ(error_with(limit.max_items).message, "") << limit.param;
  const ApiError error = error_with(limit.max_items + 1);
  EXPECT_EQ(error.code, kInvalidValue) << limit.param;
  EXPECT_EQ(error.param, limit.param);
  EXPECT_EQ(
      error.message,
      fmt::format(
          "{} is a list of {}; expected {}", limit.param, limit.max_items + 1, limit.expected));
}

TEST(ParseLimits, ListsOfChats) {
  const std::string call = R"({"id": "c", "function": {"name": "f", "arguments": ""}})";
  const std::string messages = fmt::format(R"("messages": [{}], )", kMessage);
  const ListLimit limits[] = {
      {2048, kMessage, R"("messages": )", "", "messages", "a list of 1 to 2048 messages"},
      {256,
       R"({"type": "text", "text": "x"})",
       R"("messages": [{"role": "user", "content": )",
       "}]",
       "messages[0].content",
       "a list of 1 to 256 text parts"},
      {128,
       call,
       R"("messages": [{"role": "assistant", "tool_calls": )",
       "}]",
       "messages[0].tool_calls",
       "a list of 0 to 128 tool calls"},
      {256,
       R"({"type": "function", "function": {"name": "f"}})",
       messages + R"("tools": )",
       "",
       "tools",
       "a list of 0 to 256 tools"},
      {256, "{}", messages + R"("documents": )", "", "documents", "a list of 0 to 256 objects"},
      {64, R"("a")", messages + R"("stop": )", "", "stop", "a list of 0 to 64 strings"},
      {256,
       "1",
       messages + R"("stop_token_ids": )",
       "",
       "stop_token_ids",
       "a list of 0 to 256 token ids"},
  };
  for (const ListLimit& limit : limits) expect_limit(limit, chat_error);
}

TEST(ParseLimits, ListsOfCompletions) {
  expect_limit({1024, R"("a")", R"("prompt": )", "", "prompt", "a list of 1 to 1024 strings"},
               completion_error);
  expect_limit(
      {1024, "[1]", R"("prompt": )", "", "prompt", "a list of 1 to 1024 lists of token ids"},
      completion_error);
  // The model's context bounds these.
  EXPECT_EQ(completion_error("\"prompt\": [" + repeated("1", 100'000) + "]").message, "");
}

TEST(ParseLimits, Objects) {
  const auto biases = [](size_t count) {
    return completion_error(R"("prompt": "x", "logit_bias": {)" + members("1", count) + "}");
  };
  EXPECT_EQ(biases(1024).message, "");
  EXPECT_EQ(biases(1025).message,
            "logit_bias is an object of 1025; expected an object of at most 1024 token ids, as "
            "strings, and a number in [-100, 100] each");
  const auto notes = [](size_t count) {
    return chat_error(
        fmt::format(R"("messages": [{}], "metadata": {{{}}})", kMessage, members(R"("")", count)));
  };
  EXPECT_EQ(notes(16).message, "");
  EXPECT_EQ(notes(17).message,
            "metadata is an object of 17; expected an object of at most 16 strings");
}

TEST(ParseLimits, AreThoseOfTheEngine) {
  const auto parsed = parse_completion_request(
      fmt::format(R"({{"prompt": "x", "logit_bias": {{{}}}, "stop_token_ids": [{}]}})",
                  members("1", SamplingParams::kMaxLogitBias),
                  repeated("1", SamplingParams::kMaxStopTokenIds)),
      {});
  ASSERT_TRUE(std::holds_alternative<CompletionRequest>(parsed));
  EXPECT_TRUE(std::get<CompletionRequest>(parsed).sampling.validate(2000).ok());
}

}  // namespace
}  // namespace atom::server
