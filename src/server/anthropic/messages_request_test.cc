#include "server/anthropic/messages_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/openai/field_error.h"

namespace atom::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ChatCompletionRequest parsed(const std::string& body) {
  Parsed<ChatCompletionRequest> result = parse_messages_request(body, {});
  if (const auto* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<ChatCompletionRequest>(std::move(result));
}

ApiError error_of(const std::string& body) {
  const Parsed<ChatCompletionRequest> result = parse_messages_request(body, {});
  if (const auto* error = std::get_if<ApiError>(&result)) return *error;
  ADD_FAILURE() << "accepted: " << body;
  return {};
}

TEST(MessagesRequest, IsAConversationOfChatCompletions) {
  const ChatCompletionRequest request = parsed(R"({
    "model": "m", "max_tokens": 64, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "stream": true,
    "stop_sequences": ["x"], "metadata": {"user_id": "u"}, "thinking": {"type": "enabled",
    "budget_tokens": 1024},
    "system": [{"type": "text", "text": "be", "cache_control": {"type": "ephemeral"}},
               {"type": "text", "text": "brief"}],
    "messages": [
      {"role": "user", "content": "hi"},
      {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "let me see"},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "7"}]},
        {"type": "tool_result", "tool_use_id": "t2", "is_error": true},
        {"type": "text", "text": "and now?"}]}],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": true}})");
  EXPECT_EQ(request.messages->dump(),
            OrderedJson::parse(R"([
      {"role": "system", "content": "be\nbrief"},
      {"role": "user", "content": "hi"},
      {"role": "assistant", "content": "let me see", "reasoning_content": "hm", "tool_calls": [
        {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]},
      {"role": "tool", "tool_call_id": "t1", "content": "7"},
      {"role": "tool", "tool_call_id": "t2", "content": ""},
      {"role": "user", "content": "and now?"}])")
                .dump());
  EXPECT_EQ(request.tools->dump(),
            R"([{"type":"function","function":{"name":"f","description":"d",)"
            R"("parameters":{"type":"object"}}}])");
  EXPECT_EQ(request.chat_template_kwargs->dump(), R"({"enable_thinking":true,"thinking":true})");
  EXPECT_EQ(request.model, "m");
  EXPECT_TRUE(request.stream);
  EXPECT_FALSE(request.parallel_tool_calls);
  EXPECT_EQ(request.tool_choice, ToolChoice::kAuto);
  EXPECT_TRUE(request.has_max_tokens);
  EXPECT_EQ(request.sampling.max_tokens, 64);
  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.sampling.top_k, 5);
  EXPECT_THAT(request.sampling.stop, ElementsAre("x"));
  EXPECT_EQ(request.user, "u");
}

TEST(MessagesRequest, RefusesWithThePathOfTheFault) {
  const auto refused = [](const std::string& members, const char* param, const char* code) {
    const ApiError error = error_of("{" + members + "}");
    EXPECT_EQ(error.param, param) << members << ": " << error.message;
    EXPECT_EQ(error.code, code) << members << ": " << error.message;
  };
  const std::string ask = R"("messages": [{"role": "user", "content": "x"}])";
  refused(ask, "max_tokens", kMissingField);
  refused(R"("max_tokens": 5)", "messages", kMissingField);
  refused(ask + R"(, "max_tokens": 0)", "max_tokens", kInvalidValue);
  refused(R"("max_tokens": 5, "messages": [{"role": "tool", "content": "x"}])",
          "messages[0].role",
          kInvalidValue);
  refused(R"("max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "image"}]}])",
          "messages[0].content[0].type",
          kUnsupportedField);
  refused(R"("max_tokens": 5, "messages": [{"role": "user", "content": []}])",
          "messages",
          kInvalidValue);
  refused(R"("max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "tool_use"}]}])",
          "messages[0].content[0].type",
          kInvalidValue);
  refused(ask + R"(, "max_tokens": 5, "tool_choice": {"type": "required"})",
          "tool_choice.type",
          kInvalidValue);
  refused(ask + R"(, "max_tokens": 5, "tools": [{"type": "web_search_20250305", "name": "w"}])",
          "tools[0].type",
          kUnsupportedField);
  EXPECT_EQ(error_of(R"({"max_tokens": 5, "messages": "x", "y": 1})").code, kInvalidType);
}

TEST(MessagesRequest, FormsOfAnswers) {
  const std::string ask = R"({"max_tokens": 5, "messages": [{"role": "user", "content": "x"}], )";
  const auto parsed = [&](const std::string& members) {
    return std::get<ChatCompletionRequest>(parse_messages_request(ask + members + "}", {}, {}));
  };
  EXPECT_TRUE(parsed(R"("tool_choice": {"type": "any"})").tool_choice == ToolChoice::kRequired);
  const ChatCompletionRequest named = parsed(R"("tool_choice": {"type": "tool", "name": "f"})");
  EXPECT_TRUE(named.tool_choice == ToolChoice::kNamed);
  EXPECT_EQ(named.tool_choice.name, "f");
  const std::string format = R"({"type": "json_schema", "schema": {"type": "null"}})";
  for (const std::string& members :
       {"\"output_format\": " + format, "\"output_config\": {\"format\": " + format + "}"}) {
    ASSERT_NE(parsed(members).rules.output_format, nullptr) << members;
  }
}

TEST(MessagesRequest, CountsTokensWithoutALimitOfTheAnswer) {
  const Parsed<ChatCompletionRequest> result =
      parse_count_tokens_request(R"({"messages": [{"role": "user", "content": "x"}]})");
  ASSERT_TRUE(std::holds_alternative<ChatCompletionRequest>(result));
  EXPECT_FALSE(std::get<ChatCompletionRequest>(result).has_max_tokens);
}

}  // namespace
}  // namespace atom::server
