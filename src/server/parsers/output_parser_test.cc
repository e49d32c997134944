// Answers written by hand after the chat templates: right, broken and cut off. Those without tools
// and of the families whose calls are JSON objects; the others are in output_parser_marked_test.cc.
#include "server/parsers/output_parser.h"

#include <gtest/gtest.h>

#include "server/parsers/output_parser_family_test.h"

namespace atom::server {
namespace {

TEST(OutputParser, Plain) {
  const Family plain("none", "none");
  plain.check({"a <tool_call> <think> b\n", "", "a <tool_call> <think> b\n"});
  plain.check({"", "", ""});
}

TEST(OutputParser, Reasoning) {
  const Family open("none", "qwen3");
  open.check({"<think>\nwhy\n</think>\n\nbecause\n", "why", "because\n"});
  open.check({"\n<think>why</think>because", "why", "because"});
  open.check({"<think></think>\n4", "", "4"});
  open.check({"<think>\n\n</think>\n\n4", "", "4"});
  open.check({"no reasoning <think>", "", "no reasoning <think>"});
  open.check({" <thin", "", " <thin"});
  open.check({"  \n", "", "  \n"});
  open.check({"<think>cut off\n", "cut off\n", ""});
  open.check({"<think>a\n\nb</th</think>c</think>d", "a\n\nb</th", "c</think>d"});
  open.check({"</think>\n\nof the prompt", "", "of the prompt"});

  const Family opened("none", "deepseek_r1", "<｜Assistant｜><think>\n");
  opened.check({"\nwhy\n</think>\n\nbecause", "why", "because"});
  opened.check({"cut", "cut", ""});
  opened.check({"</think>4", "", "4"});

  const Family first("none", "deepseek_r1", "<｜Assistant｜>");
  first.check({"why\n</think>\n\nbecause", "why", "because"});
  first.check({"\n<think>\nwhy</think>because", "why", "because"});
  first.check({" <th", "<th", ""});
  first.check({"</think>4", "", "4"});
  first.check({"", "", ""});
  const Family answers("none", "deepseek_r1", "<think>\n\n</think>\n\n");
  answers.check({"4 </think>", "", "4 </think>"});

  const Family closed("none", "qwen3", "<think>\n\n</think>\n\n");
  closed.check({"\n4 <think>", "", "4 <think>"});

  const Family none("hermes", "none", "<think>\n");
  none.check({"a</think>b", "", "a</think>b"});

  const Family mistral("mistral", "mistral");
  mistral.check({"[THINK]hm[/THINK]yes", "hm", "yes"});
}

TEST(OutputParser, Hermes) {
  const Family hermes("hermes", "qwen3");
  hermes.check(
      {"Let me look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
       "\"Zürich\", \"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"search\", "
       "\"arguments\": {\"query\": \"</tool_call> {}\\\"\", \"filters\": "
       "[{\"a\": {\"b\": null}}]}}\n</tool_call>",
       "",
       "Let me look.",
       {{"get_weather", R"({"city": "Zürich", "days": 2})"},
        {"search", R"({"query": "</tool_call> {}\"", "filters": [{"a": {"b": null}}]})"}}});
  hermes.check(
      {"<think>\nuse it\n</think>\n\n<tool_call>{\"name\":\"now\",\"arguments\":{}}"
       "</tool_call>\n after",
       "use it",
       "after",
       {{"now", "{}"}}});
  // Keys in another order, other keys, no arguments, null, arguments as a string.
  hermes.check(
      {"<tool_call>{\"id\": [1, -2.5e3, true], \"arguments\": {\"city\": \"x\"}, "
       "\"name\": \"n\\u00e9w\\ud83c\\udf89\"}</tool_call>",
       "",
       "",
       {{"néw🎉", R"({"city": "x"})"}}});
  hermes.check({"<tool_call>{\"name\": \"now\"}</tool_call>", "", "", {{"now", "{}"}}});
  hermes.check(
      {"<tool_call>{\"name\": \"now\", \"arguments\": null}</tool_call>", "", "", {{"now", "{}"}}});
  hermes.check(
      {"<tool_call>{\"name\": \"f\", \"arguments\": \" {\\\"a\\\": \\\"\\\\n\\\"}\"}"
       "</tool_call>",
       "",
       "",
       {{"f", R"({"a": "\n"})"}}});
  // Two objects in one section; a missing end in front of the next call.
  hermes.check(
      {"<tool_call>{\"name\":\"a\",\"arguments\":{}}\n{\"name\":\"b\",\"arguments\":{}}"
       "<tool_call>{\"name\":\"c\",\"arguments\":{}}",
       "",
       "",
       {{"a", "{}"}, {"b", "{}"}, {"c", "{}"}}});
}

TEST(OutputParser, HermesBroken) {
  const Family hermes("hermes", "qwen3");
  // Not a call: all of it is content.
  hermes.check({"the <tool_call> tag", "", "the <tool_call> tag"});
  hermes.check({"a\n<tool_call>{\"nom\": 1}</tool_call>\nb",
                "",
                "a\n<tool_call>{\"nom\": 1}</tool_call>\nb"});
  hermes.check(
      {"<tool_call>{\"name\": \"\"}</tool_call>", "", "<tool_call>{\"name\": \"\"}</tool_call>"});
  hermes.check({"<tool_call>{\"name\": \"f\", \"arguments\": 3}</tool_call>",
                "",
                "<tool_call>{\"name\": \"f\", \"arguments\": 3}</tool_call>"});
  hermes.check({"<tool_call>{\"name\": \"f\", \"arguments\": \"x\"}</tool_call>",
                "",
                "<tool_call>{\"name\": \"f\", \"arguments\": \"x\"}</tool_call>"});
  hermes.check({"<tool_call><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
                "",
                "<tool_call>",
                {{"f", "{}"}}});
  // The arguments are wrong JSON: passed on as they are.
  hermes.check({"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1,}}\n</tool_call> b",
                "",
                "b",
                {{"f", "{\"a\": 1,}}\n"}}});
  // More than the call in its section.
  hermes.check({"<tool_call>{\"name\": \"f\", \"arguments\": {}}}\n</tool_call> b",
                "",
                "}\n b",
                {{"f", "{}"}}});
  // Cut off.
  hermes.check({"a <tool_call>\n{\"name\": \"get_w", "", "a <tool_call>\n{\"name\": \"get_w"});
  hermes.check({"a <tool_c", "", "a <tool_c"});
  hermes.check({"a <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b",
                "",
                "a",
                {{"f", "{\"a\": \"b"}}});
  hermes.check(
      {"<tool_call>{\"name\": \"f\", \"arguments\": {}}\n</tool_ca", "", "", {{"f", "{}"}}});
  // In the reasoning: a call ends it, anything else does not.
  hermes.check({"<think>the <tool_call> tag\n</think>a", "the <tool_call> tag", "a"});
  hermes.check(
      {"<think>so\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n</think>\na",
       "so",
       "a",
       {{"f", "{}"}}});
}

TEST(OutputParser, WithoutTools) {
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  Family("hermes", "qwen3").without_tools().check({"<think>x</think>" + call, "x", call});
  const std::string object = R"({"name": "f", "parameters": {}})";
  Family("llama3_json", "none")
      .without_tools()
      .check({"<|python_tag|>" + object, "", "<|python_tag|>" + object});
  Family("openai", "openai_gptoss", "<|start|>assistant")
      .without_tools()
      .check({" to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "", "{}"});
  Family("mistral", "none").without_tools().check({"[TOOL_CALLS][]", "", "[TOOL_CALLS][]"});
}

TEST(OutputParser, Llama) {
  const Family llama("llama3_json", "none");
  llama.check({"{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Zürich\"}}",
               "",
               "",
               {{"get_weather", R"({"city": "Zürich"})"}}});
  llama.check(
      {"\n<|python_tag|>{\"type\": \"function\", \"name\": \"a\", \"parameters\": {}}; "
       "{\"name\": \"b\", \"arguments\": {\"x\": 1}}",
       "",
       "",
       {{"a", "{}"}, {"b", R"({"x": 1})"}}});
  llama.check({"{\"name\": \"a\", \"parameters\": \"{\\\"city\\\": \\\"Bern\\\"}\"}",
               "",
               "",
               {{"a", R"({"city": "Bern"})"}}});
  // JSON that is no call, Python, text behind a call, braces in text.
  llama.check({" {\"name\": \"Bob\"}", "", " {\"name\": \"Bob\"}"});
  llama.check({"{\"name\": \"Bob\", \"age\": 3}\n", "", "{\"name\": \"Bob\", \"age\": 3}\n"});
  llama.check({"<|python_tag|>brave_search.call(query=\"x\")",
               "",
               "<|python_tag|>brave_search.call(query=\"x\")"});
  llama.check({"{\"name\": \"a\", \"parameters\": {}} ; b", "", "; b", {{"a", "{}"}}});
  llama.check({"see {\"name\": \"a\", \"parameters\": {}}",
               "",
               "see {\"name\": \"a\", \"parameters\": {}}"});
  llama.check({"{\"name\": \"a\", \"parameters\": {\"x\"", "", "", {{"a", "{\"x\""}}});
  llama.check({"  {\"name\": \"a\", ", "", "  {\"name\": \"a\", "});
}

TEST(OutputParser, Mistral) {
  const Family mistral("mistral", "none");
  mistral.check(
      {"Look. [TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": "
       "\"Bern\"}, \"id\": \"abcdefghi\"}, {\"name\": \"now\", \"arguments\": {}}]",
       "",
       "Look.",
       {{"get_weather", R"({"city": "Bern"})"}, {"now", "{}"}}});
  mistral.check({"[TOOL_CALLS] [ {\"arguments\": {\"a\": \"[TOOL_CALLS]\"}, \"name\": \"f\"} ]\nb",
                 "",
                 "b",
                 {{"f", R"({"a": "[TOOL_CALLS]"})"}}});
  mistral.check(
      {"[TOOL_CALLS]get_weather[CALL_ID]abc123DEF[ARGS]{\"city\": \"Bern\"}"
       "[TOOL_CALLS]now[ARGS] {}[TOOL_CALLS]now{}",
       "",
       "",
       {{"get_weather", R"({"city": "Bern"})"}, {"now", "{}"}, {"now", "{}"}}});
  mistral.check({"[TOOL_CALLS]{\"name\": \"now\", \"arguments\": {}} b", "", "b", {{"now", "{}"}}});
  mistral.check({"[TOOL_CALLS][]", "", "[TOOL_CALLS][]"});
  mistral.check({"[TOOL_CALLS]f g", "", "[TOOL_CALLS]f g"});
  mistral.check({"[TOOL_CALLS]f[CALL_ID]", "", "[TOOL_CALLS]f[CALL_ID]"});
  mistral.check({"[TOOL_CALLS][{\"name\": \"f\"", "", "[TOOL_CALLS][{\"name\": \"f\""});
  mistral.check(
      {"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": [1", "", "", {{"f", "{\"a\": [1"}}});
  mistral.check({"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, 3", "", "3", {{"f", "{}"}}});
}

TEST(OutputParser, LongHeadersAndSpaceAreBounded) {
  const std::string words(5000, 'x');
  const std::string space(1000, '\n');
  Family("openai", "openai_gptoss").check({"a" + words + "<|end|>b", "", "a" + words + "\nb"});
  Family("glm45", "none").check({"<tool_call>" + words, "", "<tool_call>" + words});
  Family("hermes", "none")
      .check({"a" + space + "<tool_call>{\"name\":\"f\",\"arguments\":{}}",
              "",
              "a" + std::string(1000 - 256, '\n'),
              {{"f", "{}"}}});
  Family("hermes", "qwen3").check({space + "<think>", "", space + "<think>"});
  const std::string deep(600, '[');
  Family("hermes", "none")
      .check({"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":" + deep + "}}</tool_call>",
              "",
              "",
              {{"f", "{\"a\":" + deep + "}}"}}});
}

TEST(OutputParser, HugeArguments) {
  const auto format = format_named("hermes", "none");
  std::string arguments = "{\"text\": \"";
  for (int i = 0; i < 100'000; ++i) arguments += "line <tool_call> {\\n";
  arguments += "\"}";
  const std::string text =
      "<tool_call>\n{\"name\": \"edit\", \"arguments\": " + arguments + "}\n</tool_call>";
  std::vector<std::string_view> pieces;
  for (size_t i = 0; i < text.size(); i += 3) {
    pieces.push_back(std::string_view(text).substr(i, 3));
  }
  const ParsedAnswer answer = parse_pieces({format.get(), "", &test_tools()}, pieces);
  ASSERT_EQ(answer.calls.size(), 1);
  EXPECT_EQ(answer.calls[0].arguments, arguments);
  EXPECT_EQ(answer.content, "");
}

TEST(OutputParser, Ids) {
  const std::string text =
      "<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>"
      "<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>";
  const ParsedAnswer hermes = Family("hermes", "none").parse(text);
  ASSERT_EQ(hermes.calls.size(), 2);
  EXPECT_EQ(hermes.calls[0].id.size(), 5 + 24);
  EXPECT_TRUE(hermes.calls[0].id.starts_with("call_"));
  EXPECT_NE(hermes.calls[0].id, hermes.calls[1].id);

  const ParsedAnswer mistral =
      Family("mistral", "none")
          .parse("[TOOL_CALLS]f[CALL_ID]abc123DEF[ARGS]{}[TOOL_CALLS]f[ARGS]{}");
  ASSERT_EQ(mistral.calls.size(), 2);
  EXPECT_EQ(mistral.calls[0].id, "abc123DEF");
  EXPECT_EQ(mistral.calls[1].id.size(), 9);
}

}  // namespace
}  // namespace atom::server
