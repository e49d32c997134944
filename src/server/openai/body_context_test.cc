// Reading bodies by what the server knows besides: unknown fields, the vocabulary, limits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "server/openai/parse_requests.h"
#include "server/openai/parsed_request_test.h"

namespace atom::server {
namespace {

// What a client's library puts beside what it was sent, in the second turn of a conversation.
constexpr const char* kSecondTurn = R"({"messages": [
    {"role": "user", "content": [
      {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}, "x": 1}], "id": "m1"},
    {"role": "assistant", "content": "a", "parsed": null, "provider_specific_fields": {"a": null},
     "refusal": null, "annotations": [{"url": "u"}], "reasoning_details": [], "tool_calls": [
       {"id": "c", "type": "function", "extra_content": {},
        "function": {"name": "f", "arguments": "{}", "parsed_arguments": {"a": 1}}}]},
    {"role": "tool", "tool_call_id": "c", "content": "7", "is_error": false}],
  "tools": [{"type": "function", "cache_control": {}, "x": 1,
             "function": {"name": "f", "parameters": {"x": 1}, "y": 2}}],
  "extra_body": {}, "temprature": 1})";

TEST(BodyContext, CollectsUnknownFieldsAndReadsTheRest) {
  UnknownFields unknown;
  const BodyContext context{.unknown = &unknown};
  const ChatCompletionRequest request =
      expect_parsed(parse_chat_completion_request(kSecondTurn, {}, context), kSecondTurn);
  const std::set<std::string> expected = {
      "messages[].content[].x",
      "messages[].id",
      "messages[].parsed",
      "messages[].provider_specific_fields",
      "messages[].reasoning_details",
      "messages[].tool_calls[].extra_content",
      "messages[].tool_calls[].function.parsed_arguments",
      "messages[].is_error",
      "tools[].x",
      "tools[].function.y",
      "extra_body",
      "temprature",
  };
  EXPECT_EQ(std::set<std::string>(unknown.names.begin(), unknown.names.end()), expected);
  EXPECT_EQ(unknown.count, 12u);
  // The chat template sees none of them.
  EXPECT_EQ(request.messages->dump(),
            OrderedJson::parse(R"([
    {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    {"role": "assistant", "content": "a", "tool_calls": [
       {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c", "content": "7"}])")
                .dump());
  EXPECT_EQ(request.tools->dump(),
            R"([{"type":"function","function":{"name":"f","parameters":{"x":1}}}])");
  EXPECT_EQ(expect_error(parse_chat_completion_request(kSecondTurn, {}), kSecondTurn).code,
            kUnknownField);
}

TEST(BodyContext, CountsManyUnknownFieldsAndKeepsFewNames) {
  std::string members = "\"a\": 1";
  for (int i = 0; i < 1000; ++i) members += fmt::format(", \"unknown{}\": 1", i);
  UnknownFields unknown;
  const std::string body = completion_body(members);
  expect_parsed(parse_completion_request(body, {}, {.unknown = &unknown}), body);
  EXPECT_EQ(unknown.count, 1001u);
  EXPECT_EQ(unknown.names.size(), UnknownFields::kMaxNames);
}

TEST(BodyContext, NamesTheTokenIdOutsideTheVocabulary) {
  const auto error = [](const std::string& members) {
    const std::string body = "{" + members + "}";
    return expect_error(parse_completion_request(body, {}, {.vocab_size = 100}), body);
  };
  EXPECT_EQ(error(R"("prompt": [5, 100])").param, "prompt[1]");
  EXPECT_EQ(error(R"("prompt": [5, 100])").message,
            "prompt[1] is 100; expected an integer in [0, 99]");
  EXPECT_EQ(error(R"("prompt": "x", "logit_bias": {"9999": 1})").param, "logit_bias.9999");
  EXPECT_EQ(error(R"("prompt": "x", "stop_token_ids": [100])").param, "stop_token_ids[0]");
  EXPECT_EQ(error(R"("prompt": "x", "allowed_token_ids": [1, 100])").param, "allowed_token_ids[1]");
}

TEST(BodyContext, RefusesMoreLogprobsThanTheServerGives) {
  const BodyContext context{.max_logprobs = 20};
  const auto error = [&](const std::string& members) {
    const std::string body = chat_body(members);
    return expect_error(parse_chat_completion_request(body, {}, context), body);
  };
  EXPECT_EQ(error(R"("logprobs": true, "top_logprobs": 21)").param, "top_logprobs");
  EXPECT_EQ(error(R"("prompt_logprobs": 21)").param, "prompt_logprobs");
  const std::string body = completion_body(R"("logprobs": 21)");
  EXPECT_EQ(expect_error(parse_completion_request(body, {}, context), body).param, "logprobs");
  const std::string most = chat_body(R"("logprobs": true, "top_logprobs": 20)");
  expect_parsed(parse_chat_completion_request(most, {}, context), most);
}

}  // namespace
}  // namespace atom::server
