// Messages and tools of chats: forms that are taken, and the path of what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/openai/field_error.h"
#include "server/openai/parse_requests.h"
#include "server/openai/parsed_request_test.h"

namespace atom::server {
namespace {

using ::testing::HasSubstr;

TEST(ParseRequests, TakesOtherRoles) {
  EXPECT_EQ(parsed_conversation(R"([{"role": "function", "name": "f", "content": "7"},
                             {"role": "critic", "content": null}])")
                .messages->dump(),
            R"([{"role":"function","name":"f","content":"7"},{"role":"critic","content":null}])");
}

TEST(ParseRequests, TakesTheMessagesThatClientsSend) {
  EXPECT_EQ(parsed_conversation(R"([
      {"role": "system", "content": "s", "name": null},
      {"role": "developer", "content": [{"type": "text", "text": "d"}]},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}],
       "name": "me"},
      {"role": "assistant", "content": null, "refusal": null, "audio": null, "annotations": [],
       "function_call": null, "reasoning_content": "r", "tool_calls": [
         {"id": "c", "type": "function", "index": 0,
          "function": {"name": "f", "arguments": "{not json"}}]},
      {"role": "tool", "tool_call_id": "c", "content": "7"},
      {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "tool_calls": []},
      {"role": "assistant"}])")
                .messages->dump(),
            OrderedJson::parse(R"([
      {"role": "system", "content": "s"},
      {"role": "developer", "content": [{"type": "text", "text": "d"}]},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}],
       "name": "me"},
      {"role": "assistant", "content": null, "reasoning_content": "r", "tool_calls": [
         {"id": "c", "type": "function", "index": 0,
          "function": {"name": "f", "arguments": "{not json"}}]},
      {"role": "tool", "tool_call_id": "c", "content": "7"},
      {"role": "assistant", "content": [{"type": "text", "text": "no"}], "tool_calls": []},
      {"role": "assistant"}])")
                .dump());
}

// Messages, the path of what is wrong with them, and part of what is said of it.
struct FaultyMessages {
  const char* messages;
  const char* param;
  const char* code;
  const char* message;
};

const FaultyMessages kFaultyMessages[] = {
    {"[]", "messages", kInvalidValue, "a list of 0; expected a list of 1 to 2048 messages"},
    {"{}", "messages", kInvalidType, "an object"},
    {"null", "messages", kInvalidType, "messages is null"},
    {"[1]", "messages[0]", kInvalidType, "messages[0] is 1; expected {\"role\""},
    {R"([{"content": "x"}])", "messages[0].role", kMissingField, "'system', 'developer', 'user'"},
    {R"([{"role": 1}])", "messages[0].role", kInvalidType, "is 1"},
    {R"([{"role": "", "content": "x"}])", "messages[0].role", kInvalidValue, "1 to 64"},
    {R"([{"role": "user"}])", "messages[0].content", kMissingField, "a string or a list of 1"},
    {R"([{"role": "user", "content": null}])", "messages[0].content", kInvalidType, "null"},
    {R"([{"role": "user", "content": 1}])", "messages[0].content", kInvalidType, "is 1"},
    {R"([{"role": "user", "content": []}])", "messages[0].content", kInvalidValue, "a list of 0"},
    {R"([{"role": "user", "content": ["x"]}])", "messages[0].content[0]", kInvalidType, "'x'"},
    {R"([{"role": "user", "content": [{"text": "x"}]}])",
     "messages[0].content[0].type",
     kMissingField,
     "'text'"},
    {R"([{"role": "user", "content": [{"type": "text"}]}])",
     "messages[0].content[0].text",
     kMissingField,
     "a string"},
    {R"([{"role": "user", "content": [{"type": "text", "text": 1}]}])",
     "messages[0].content[0].text",
     kInvalidType,
     "is 1"},
    {R"([{"role": "user", "content": "x"}, {"role": "user", "content": [
         {"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]}])",
     "messages[1].content[1].type",
     kUnsupportedField,
     "is 'image_url'; expected 'text': this model takes text only"},
    {R"([{"role": "user", "content": [{"type": "refusal", "refusal": "x"}]}])",
     "messages[0].content[0].type",
     kInvalidValue,
     "'refusal'"},
    {R"([{"role": "user", "content": "x", "contents": "y"}])",
     "messages[0].contents",
     kUnknownField,
     "did you mean 'content'"},
    {R"([{"role": "user", "content": "x", "tool_calls": null}])",
     "messages[0].tool_calls",
     kUnknownField,
     "unknown"},
    {R"([{"role": "tool", "content": "x"}])", "messages[0].tool_call_id", kMissingField, "a str"},
    {R"([{"role": "assistant", "tool_calls": {}}])", "messages[0].tool_calls", kInvalidType, "li"},
    {R"([{"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "function":
         {"name": "f", "arguments": ""}}]}])",
     "messages[0].tool_calls[0].type",
     kInvalidValue,
     "'custom'"},
    {R"([{"role": "assistant", "tool_calls": [{"id": "a", "function":
         {"name": "f", "arguments": {}}}]}])",
     "messages[0].tool_calls[0].function.arguments",
     kInvalidType,
     "an object of 0; expected a string"},
    {R"([{"role": "assistant", "tool_calls": [{"id": "a", "function":
         {"name": "a b", "arguments": ""}}]}])",
     "messages[0].tool_calls[0].function.name",
     kInvalidValue,
     "'a b'"},
    {R"([{"role": "assistant", "content": "x", "audio": {"id": "a"}}])",
     "messages[0].audio",
     kUnsupportedField,
     "text only"},
};

TEST(ParseRequests, RefusesMessagesWithThePathOfTheFault) {
  for (const FaultyMessages& test : kFaultyMessages) {
    const ApiError error = conversation_error(test.messages);
    EXPECT_EQ(error.param, test.param) << test.messages << ": " << error.message;
    EXPECT_EQ(error.code, test.code) << test.messages << ": " << error.message;
    EXPECT_THAT(error.message, HasSubstr(test.message)) << test.messages;
  }
}

TEST(ParseRequests, RefusesToolsWithThePathOfTheFault) {
  const auto expect_refused = [](const char* tool, const char* param, const char* code) {
    const ApiError error = chat_error(R"("tools": [)" + std::string(tool) + "]");
    EXPECT_EQ(error.param, param) << tool << ": " << error.message;
    EXPECT_EQ(error.code, code) << tool << ": " << error.message;
  };
  expect_refused("{}", "tools[0].type", kMissingField);
  expect_refused(R"({"type": "function"})", "tools[0].function", kMissingField);
  expect_refused(R"({"type": "custom", "custom": {}})", "tools[0].type", kUnsupportedField);
  expect_refused(
      R"({"type": "function", "function": {}})", "tools[0].function.name", kMissingField);
  expect_refused(
      R"({"type": "function", "function": {"name": ""}})", "tools[0].function.name", kInvalidValue);
  expect_refused(R"({"type": "function", "function": {"name": "f", "parameters": []}})",
                 "tools[0].function.parameters",
                 kInvalidType);
  expect_refused(R"({"type": "function", "function": {"name": "f", "strict": "yes"}})",
                 "tools[0].function.strict",
                 kInvalidType);
  expect_refused(
      R"({"type": "function", "function": {"name": "f"}, "x": 1})", "tools[0].x", kUnknownField);
  const std::string long_name(65, 'f');
  expect_refused((R"({"type": "function", "function": {"name": ")" + long_name + "\"}}").c_str(),
                 "tools[0].function.name",
                 kInvalidValue);
}

}  // namespace
}  // namespace atom::server
