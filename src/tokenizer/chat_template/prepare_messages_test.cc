#include "tokenizer/chat_template/prepare_messages.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace atom {
namespace {

OrderedJson json_of(std::string_view text) {
  return parse_ordered_json(text, "test").value();
}

std::string prepared(std::string_view messages, const MessagePreparation& preparation = {}) {
  const auto result = prepare_messages(json_of(messages), preparation);
  return result.ok() ? result->dump() : result.status().message();
}

OrderedJson arguments_of(std::string_view arguments_json) {
  const std::string messages = R"([{"role": "assistant", "content": "", "tool_calls":
      [{"type": "function", "function": {"name": "f", "arguments": )" +
                               std::string(arguments_json) + "}}]}]";
  return (*prepare_messages(json_of(messages), {}))[0]["tool_calls"][0]["function"]["arguments"];
}

TEST(PrepareMessages, ArgumentsBecomeObjects) {
  EXPECT_EQ(arguments_of(R"("{\"b\": 1, \"a\": 2.0}")").dump(), R"({"b":1,"a":2.0})");
  EXPECT_EQ(arguments_of(R"({"x": 1})").dump(), R"({"x":1})");
  EXPECT_EQ(arguments_of(R"("")").dump(), "{}");
  EXPECT_EQ(arguments_of("null").dump(), "{}");
  EXPECT_EQ(arguments_of(R"("null")").dump(), "{}");
  EXPECT_EQ(arguments_of(R"("{\"p\": \"C:\\data\\u00e9\"}")")["p"], "C:\\data\u00e9");
  EXPECT_EQ(arguments_of(R"("{oops")").dump(), R"({"_raw":"{oops"})");
  EXPECT_EQ(arguments_of(R"("[1]")").dump(), R"({"_raw":"[1]"})");
}

TEST(PrepareMessages, ArgumentsBecomeText) {
  MessagePreparation preparation;
  preparation.arguments_as_text = true;
  EXPECT_EQ(prepared(R"([{"role": "assistant", "content": "", "tool_calls": [
                {"function": {"name": "f", "arguments": {"x": 1}}}]}])",
                     preparation),
            R"([{"role":"assistant","content":"","tool_calls":[)"
            R"({"function":{"name":"f","arguments":"{\"x\":1}"}}]}])");
}

TEST(PrepareMessages, Content) {
  constexpr std::string_view kParts =
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, "b"]}])";
  EXPECT_EQ(prepared(kParts), R"([{"role":"user","content":"a\nb"}])");
  MessagePreparation keep;
  keep.keep_content_parts = true;
  keep.keep_null_content = true;
  EXPECT_EQ(prepared(kParts, keep), json_of(kParts).dump());
  constexpr std::string_view kNull = R"([{"role":"assistant","content":null}])";
  EXPECT_EQ(prepared(kNull, keep), kNull);
  EXPECT_EQ(prepared(kNull), R"([{"role":"assistant","content":""}])");
  EXPECT_EQ(prepared(R"([{"role":"assistant"}])"), R"([{"role":"assistant","content":""}])");
  MessagePreparation wrap;
  wrap.wrap_text_content = true;
  EXPECT_EQ(prepared(R"([{"role": "user", "content": "a"}])", wrap),
            R"([{"role":"user","content":[{"type":"text","text":"a"}]}])");
}

TEST(PrepareMessages, RolesReasoningAndEmptyToolCalls) {
  MessagePreparation rename;
  rename.rename_developer = true;
  EXPECT_EQ(prepared(R"([{"role": "developer", "content": "x"}])", rename),
            R"([{"role":"system","content":"x"}])");
  EXPECT_EQ(
      prepared(R"([{"role": "assistant", "content": "x", "reasoning": "r", "tool_calls": []}])"),
      R"([{"role":"assistant","content":"x","reasoning":"r","reasoning_content":"r",)"
      R"("thinking":"r"}])");
}

TEST(PrepareMessages, RefusesWhatIsNoMessage) {
  EXPECT_EQ(prepared("{}"), "messages must be an array, not object");
  EXPECT_EQ(prepared("[1]"), "messages[0] must be an object, not number");
  EXPECT_EQ(prepared(R"([{"content": "x"}])"), "messages[0].role must be a string");
  EXPECT_NE(prepared(R"([{"role": "user", "content": 5}])").find("messages[0].content must be"),
            std::string::npos);
  EXPECT_NE(prepared(R"([{"role": "user", "content": [{"type": "image_url"}]}])")
                .find("messages[0].content: a part of type 'image_url' is not supported"),
            std::string::npos);
}

std::string rendered(std::string_view source, std::string_view messages_text) {
  const OrderedJson messages = json_of(messages_text);
  ChatTemplateInput input;
  input.messages = &messages;
  const auto text = render_conversation(ChatTemplate::parse(source, "test").value(), input);
  return text.ok() ? *text : text.status().message();
}

constexpr std::string_view kCall = R"([{"role": "assistant", "content": null, "tool_calls": [
    {"function": {"name": "f", "arguments": "{\"x\": 1}"}}]}])";

TEST(RenderConversation, GivesArgumentsAsTheTemplateWantsThem) {
  EXPECT_EQ(rendered("{{ messages[0].tool_calls[0].function.arguments|tojson }}", kCall),
            R"({"x": 1})");
  EXPECT_EQ(rendered("{{ 'A' + messages[0].tool_calls[0].function.arguments }}", kCall),
            R"(A{"x": 1})");
}

TEST(RenderConversation, ReportsTheFirstFailure) {
  EXPECT_EQ(rendered("{{ raise_exception('no ' ~ messages[0].role) }}", kCall),
            "chat template test, line 1: the template refuses this conversation: no assistant");
}

TEST(RenderConversation, FitsContentToTheTemplate) {
  constexpr std::string_view kParts =
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}]}])";
  EXPECT_EQ(rendered("{{ messages[0].content + '!' }}", kParts), "a!");
  EXPECT_EQ(rendered("{% for p in messages[0].content %}<{{ p.text }}>{% endfor %}", kParts),
            "<a>");
  EXPECT_EQ(rendered("{% for p in messages[0].content %}<{{ p.text }}>{% endfor %}",
                     R"([{"role": "user", "content": "b"}])"),
            "<b>");
  EXPECT_EQ(rendered("{{ 'none' if messages[0].content is none else 'text' }}", kCall), "none");
  EXPECT_EQ(rendered("{{ '[' + messages[0].content + ']' }}", kCall), "[]");
}

}  // namespace
}  // namespace atom
