#include "server/openai/responses_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/openai/answer_rule_kinds.h"
#include "server/openai/field_error.h"

namespace atom::server {
namespace {

ResponsesRequest parsed(const std::string& body) {
  Parsed<ResponsesRequest> result = parse_responses_request(body, {});
  if (const auto* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << error->message;
    return {};
  }
  return std::get<ResponsesRequest>(std::move(result));
}

ApiError error_of(const std::string& body) {
  const Parsed<ResponsesRequest> result = parse_responses_request(body, {});
  if (const auto* error = std::get_if<ApiError>(&result)) return *error;
  ADD_FAILURE() << "accepted: " << body;
  return {};
}

TEST(ResponsesRequest, ATextIsAUsersMessage) {
  const ResponsesRequest request = parsed(R"({"input": "hi", "instructions": "be brief"})");
  EXPECT_EQ(request.chat.messages->dump(),
            R"([{"role":"system","content":"be brief"},{"role":"user","content":"hi"}])");
  EXPECT_EQ(request.instructions, "be brief");
  EXPECT_FALSE(request.chat.has_max_tokens);
}

TEST(ResponsesRequest, ItemsAreMessages) {
  const ResponsesRequest request = parsed(R"({
    "model": "m", "max_output_tokens": 7, "temperature": 0, "stream": true, "store": false,
    "reasoning": {"effort": "low", "summary": "auto"}, "text": {"format": {"type": "text"},
    "verbosity": "low"}, "metadata": {"k": "v"}, "include": ["reasoning.encrypted_content"],
    "input": [
      {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
      {"type": "reasoning", "id": "rs_1", "summary": [],
       "content": [{"type": "reasoning_text", "text": "hm"}]},
      {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
       "content": [{"type": "output_text", "text": "b", "annotations": [], "logprobs": []}]},
      {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}",
       "status": "completed"},
      {"type": "function_call_output", "call_id": "c", "output": "7"},
      {"role": "assistant", "content": "done"},
      {"role": "user", "content": "more"}],
    "tools": [{"type": "function", "name": "f", "description": null, "strict": true,
               "parameters": {"type": "object"}}]})");
  EXPECT_EQ(request.chat.messages->dump(),
            OrderedJson::parse(R"([
      {"role": "user", "content": "a"},
      {"role": "assistant", "content": "b", "reasoning_content": "hm", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "c", "content": "7"},
      {"role": "assistant", "content": "done"},
      {"role": "user", "content": "more"}])")
                .dump());
  EXPECT_EQ(request.chat.tools->dump(),
            R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"},)"
            R"("strict":true}}])");
  EXPECT_EQ(request.chat.chat_template_kwargs->dump(), R"({"reasoning_effort":"low"})");
  EXPECT_EQ(request.chat.sampling.max_tokens, 7);
  EXPECT_STREQ(request.chat.max_tokens_field, "max_output_tokens");
  EXPECT_EQ(request.metadata->dump(), R"({"k":"v"})");
  EXPECT_EQ((*request.tools)[0]["strict"], true);
}

TEST(ResponsesRequest, ToolsThatMayBeCalledAreEchoed) {
  const std::string choice =
      R"({"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"}]})";
  const ResponsesRequest request = parsed(R"({"input": "x", "tool_choice": )" + choice + "}");
  EXPECT_EQ(request.chat.tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(request.chat.tool_choice.allowed, std::vector<std::string>{"f"});
  EXPECT_EQ(tool_choice_json(request.chat.tool_choice).dump(), choice);
}

TEST(ResponsesRequest, RefusesByNameWhatIsNotSupported) {
  const auto refused = [](const std::string& members, const char* param, const char* code) {
    const ApiError error = error_of(R"({"input": "x", )" + members + "}");
    EXPECT_EQ(error.param, param) << members << ": " << error.message;
    EXPECT_EQ(error.code, code) << members << ": " << error.message;
  };
  refused(R"("store": true)", "store", kUnsupportedField);
  refused(R"("previous_response_id": "resp_1")", "previous_response_id", kUnsupportedField);
  refused(R"("background": true)", "background", kUnsupportedField);
  refused(R"("tool_choice": "any")", "tool_choice", kInvalidValue);
  refused(R"("tool_choice": {"type": "function"})", "tool_choice.name", kMissingField);
  refused(R"("tool_choice": {"type": "allowed_tools", "mode": "auto"})",
          "tool_choice.tools",
          kMissingField);
  refused(R"("text": {"format": {"type": "xml"}})", "text.format.type", kInvalidValue);
  refused(R"("tools": [{"type": "web_search"}])", "tools[0].type", kUnsupportedField);
  refused(R"("max_output_tokens": 0)", "max_output_tokens", kInvalidValue);
  EXPECT_EQ(error_of("{}").param, "input");
  EXPECT_EQ(error_of(R"({"input": [{"type": "item_reference", "id": "x"}]})").param,
            "input[0].type");
  EXPECT_EQ(
      error_of(R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})").param,
      "input[0].content[0].type");
}

}  // namespace
}  // namespace atom::server
