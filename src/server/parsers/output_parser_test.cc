// Answers written by hand after the chat templates, for every family: right, broken and cut off.
// Each is parsed in every way it can be cut.
#include "server/parsers/output_parser.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/parsers/parse_answer_test.h"

namespace atom::server {
namespace {

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

TEST(OutputParser, QwenCoder) {
  const Family coder("qwen3_coder", "qwen3");
  coder.check(
      {"Let me look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nZürich\n"
       "</parameter>\n<parameter=days>\n2\n</parameter>\n<parameter=unit>\ncelsius\n"
       "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n"
       "</tool_call>",
       "",
       "Let me look.",
       {{"get_weather", R"({"city": "Zürich", "days": 2, "unit": "celsius"})"}, {"now", "{}"}}});
  // Text of many lines, with quotes and with tags inside of lines.
  coder.check(
      {"<tool_call>\n<function=edit>\n<parameter=text>\n\n{\"a\": \"b\\n\"}\t</function> "
       "<parameter=x>\n\n</parameter>\n<parameter=force>\nTrue\n</parameter>\n"
       "<parameter=ratio>\n-0.5\n</parameter>\n<parameter=place>\n{\"x\": [1, {}]}\n"
       "</parameter>\n</function>\n</tool_call>",
       "",
       "",
       {{"edit",
         "{\"text\": \"\\n{\\\"a\\\": \\\"b\\\\n\\\"}\\t</function> <parameter=x>\\n\", "
         "\"force\": true, \"ratio\": -0.5, \"place\": {\"x\": [1, {}]}}"}}});
  // Values that are not of the declared type, and types that allow several.
  coder.check(
      {"<function=edit><parameter=ratio>a lot</parameter><parameter=note>null</parameter>"
       "<parameter=free>[1]</parameter><parameter=force>None</parameter>"
       "<parameter=path>12</parameter><parameter=other>12</parameter></function>",
       "",
       "",
       {{"edit",
         R"({"ratio": "a lot", "note": null, "free": [1], "force": null, "path": "12", )"
         R"("other": "12"})"}}});
  coder.check(
      {"<function=edit><parameter=note>no</parameter><parameter=free>\"1</parameter>"
       "</function>",
       "",
       "",
       {{"edit", R"({"note": "no", "free": "\"1"})"}}});
  // An unknown function; ends that are missing.
  coder.check(
      {"<tool_call>\n<function=new>\n<parameter=a>\n1\n<parameter=b>\n\n</parameter>\n"
       "</tool_call>",
       "",
       "",
       {{"new", R"({"a": "1", "b": ""})"}}});
  coder.check({"<function=now>\n</function>\n<function=now></function>\n</tool_call>done",
               "",
               "done",
               {{"now", "{}"}, {"now", "{}"}}});
  // Reasoning.
  coder.check({"<think>\nso\n</think>\n\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
               "so",
               "",
               {{"now", "{}"}}});
}

TEST(OutputParser, QwenCoderBroken) {
  const Family coder("qwen3_coder", "none");
  coder.check({"the <tool_call> and <function=na me> tags",
               "",
               "the <tool_call> and <function=na me> tags"});
  coder.check(
      {"<tool_call>\n{\"name\": 1}</tool_call>", "", "<tool_call>\n{\"name\": 1}</tool_call>"});
  coder.check({"<tool_call></tool_call>", "", "<tool_call></tool_call>"});
  coder.check({"<tool_call><function=", "", "<tool_call><function="});
  coder.check(
      {"<tool_call>\n<function=edit>\nhm <parameter=path>\na\n</parameter></function>"
       "</tool_call>",
       "",
       "hm ",
       {{"edit", R"({"path": "a"})"}}});
  coder.check({"<function=edit>\n<parameter=path>\na/", "", "", {{"edit", R"({"path": "a/)"}}});
  coder.check({"<function=edit>\n<parameter=path>\na\n</para",
               "",
               "",
               {{"edit", R"({"path": "a\n</para)"}}});
  coder.check({"<function=edit>\n<parameter=path>\na\n</parameter>\n</func",
               "",
               "",
               {{"edit", R"({"path": "a")"}}});
  coder.check({"<function=edit>\n<parameter=place>\n{\"x\": [",
               "",
               "",
               {{"edit", "{\"place\": {\"x\": ["}}});
  coder.check({"<function=edit>\n<parameter=pa\nth>x</parameter></function>",
               "",
               "<parameter=pa\nth>x</parameter>",
               {{"edit", "{}"}}});
}

TEST(OutputParser, Glm) {
  const Family glm("glm45", "glm45", "<|assistant|>");
  glm.check(
      {"\n<think>so</think>\nLet me look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
       "<arg_value>Bern</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n"
       "</tool_call>\n<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>a \"b\" & <c>"
       "</arg_value>\n<arg_key>filters</arg_key>\n<arg_value>[{\"x\": null}]</arg_value>\n"
       "</tool_call>",
       "so",
       "Let me look.",
       {{"get_weather", R"({"city": "Bern", "days": 2})"},
        {"search", R"({"query": "a \"b\" & <c>", "filters": [{"x": null}]})"}}});
  // 4.7 has no newlines; no arguments; a newline that is part of the value; a missing end.
  glm.check(
      {"<think></think><tool_call>edit<arg_key>text</arg_key><arg_value>\na\n</arg_value>"
       "</tool_call><tool_call>now</tool_call><tool_call>edit\n<arg_key>path</arg_key>\n"
       "<arg_value>p\n<arg_key>force</arg_key><arg_value>false</arg_value></tool_call>",
       "",
       "",
       {{"edit", R"({"text": "\na\n"})"},
        {"now", "{}"},
        {"edit", R"({"path": "p\n", "force": false})"}}});
  glm.check({"a <tool_call>b c</tool_call>", "", "a <tool_call>b c</tool_call>"});
  glm.check(
      {"a <tool_call>{\"name\": 1}</tool_call>", "", "a <tool_call>{\"name\": 1}</tool_call>"});
  glm.check({"<tool_call>get_wea", "", "<tool_call>get_wea"});
  glm.check({"<tool_call>f<arg_key>k</arg_key>\nv</tool_call>b",
             "",
             "<arg_key>k</arg_key>vb",
             {{"f", "{}"}}});
  glm.check({"<tool_call>f\n<arg_key>k</arg_key>\n<arg_value>v", "", "", {{"f", R"({"k": "v)"}}});
}

TEST(OutputParser, DeepSeek) {
  const Family v3("deepseek_v3", "deepseek_r1", "<｜Assistant｜><think>\n");
  v3.check(
      {"so\n</think>\n\nLook:\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"
       "get_weather\n```json\n{\"city\": \"Zürich\"}\n```<｜tool▁call▁end｜>\n"
       "<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜>"
       "<｜tool▁calls▁end｜>",
       "so",
       "Look:",
       {{"get_weather", R"({"city": "Zürich"})"}, {"now", "{}"}}});
  v3.check(
      {"</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
       "\"{\\\"city\\\": \\\"Bern\\\"}\"\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "",
       "",
       {{"f", R"({"city": "Bern"})"}}});

  const Family v31("deepseek_v31", "deepseek_v3", "<｜Assistant｜></think>");
  v31.check(
      {"Look<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": "
       "\"<｜tool▁call▁end｜>\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "",
       "Look",
       {{"get_weather", R"({"city": "<｜tool▁call▁end｜>"})"}, {"now", "{}"}}});
  // The section's marker left out; its end too; a broken call behind a right one.
  v31.check({"<｜tool▁call▁begin｜>a<｜tool▁sep｜>{}<｜tool▁call▁end｜>\n\nb<｜tool▁calls▁end｜>",
             "",
             "b",
             {{"a", "{}"}}});
  v31.check(
      {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>a<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
       "<｜tool▁call▁begin｜>b c<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "",
       "<｜tool▁call▁begin｜>b c<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       {{"a", "{}"}}});
  v31.check({"a <｜tool▁calls▁begin｜> b", "", "a <｜tool▁calls▁begin｜> b"});
  v31.check(
      {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>a<｜tool▁sep｜>{\"x\" 1}<｜tool▁call▁end｜>"
       "<｜tool▁calls▁end｜>",
       "",
       "",
       {{"a", "{\"x\" 1}"}}});
  v31.check({"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>a<｜tool▁sep｜>{\"x\": 1",
             "",
             "",
             {{"a", "{\"x\": 1"}}});
  v31.check({"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>a<｜tool",
             "",
             "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>a<｜tool"});
}

TEST(OutputParser, Dsml) {
  const Family v32("deepseek_v32", "deepseek_v3", "<｜Assistant｜><think>");
  v32.check(
      {"so</think>Look.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n"
       "<｜DSML｜parameter name=\"city\" string=\"true\">\nZürich</｜DSML｜parameter>\n"
       "<｜DSML｜parameter name=\"days\" string=\"false\">2</｜DSML｜parameter>\n"
       "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"search\">\n<｜DSML｜parameter name=\"query\" "
       "string=\"false\">[1]</｜DSML｜parameter>\n<｜DSML｜parameter name=\"filters\">[]"
       "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
       "so",
       "Look.",
       {{"get_weather", R"({"city": "\nZürich", "days": 2})"},
        {"search", R"({"query": [1], "filters": []})"}}});
  v32.check(
      {"</think><｜DSML｜tool_calls><｜DSML｜invoke name=\"now\"></｜DSML｜invoke>"
       "</｜DSML｜tool_calls>",
       "",
       "",
       {{"now", "{}"}}});
  v32.check({"</think><｜DSML｜invoke name=now>", "", "<｜DSML｜invoke name=now>"});
  v32.check({"</think><｜DSML｜function_calls>\nx", "", "<｜DSML｜function_calls>\nx"});
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

TEST(OutputParser, Kimi) {
  const Family kimi("kimi_k2", "none");
  const std::string text =
      "Look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
      "<|tool_call_argument_begin|>{\"city\": \"Bern\"}<|tool_call_end|><|tool_call_begin|>"
      "functions.a.b:12<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>";
  kimi.check({text, "", "Look.", {{"get_weather", R"({"city": "Bern"})"}, {"a.b", "{}"}}});
  const ParsedAnswer answer = kimi.parse(text);
  ASSERT_EQ(answer.calls.size(), 2);
  EXPECT_EQ(answer.calls[0].id, "functions.get_weather:0");
  EXPECT_EQ(answer.calls[1].id, "functions.a.b:12");
  kimi.check({"<|tool_calls_section_begin|><|tool_calls_section_end|>",
              "",
              "<|tool_calls_section_begin|><|tool_calls_section_end|>"});
}

TEST(OutputParser, Harmony) {
  const Family harmony("openai", "openai_gptoss", "<|end|><|start|>assistant");
  harmony.check(
      {"<|channel|>analysis<|message|>so\n<|end|><|start|>assistant<|channel|>final"
       "<|message|>\nHello <|not a marker|> <|<|return|>",
       "so\n",
       "\nHello <|not a marker|> <|"});
  harmony.check(
      {"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis"
       "<|message|>b<|end|><|start|>assistant<|channel|>commentary<|message|>c<|end|>"
       "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>"
       "json<|message|>{\"city\": \"Zürich\"}<|call|>",
       "a\nb",
       "c",
       {{"get_weather", R"({"city": "Zürich"})"}}});
  harmony.check(
      {" to=functions.now<|channel|>commentary json<|message|>{}<|call|><|start|>assistant"
       " to=functions.f<|channel|>analysis code<|message|> \"{\\\"a\\\": 1}\"<|call|>"
       "<|start|>assistant to=functions.now<|channel|>commentary<|message|>",
       "",
       "",
       {{"now", "{}"}, {"f", " {\"a\": 1}"}, {"now", "{}"}}});
  // The end token of the answer is not in the text; a header that is missing, cut off or broken.
  harmony.check({"<|channel|>final<|message|>Hi", "", "Hi"});
  harmony.check({"Hi", "", "Hi"});
  harmony.check({"<|channel|>ana", "", ""});
  harmony.check({"<|channel|>analysis<|message|>a<|channel|>final<|message|>b", "a", "b"});
  harmony.check(
      {"<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>b", "a", "b"});
  harmony.check({"<|channel|>final<|message|>a<|end|> b", "", "a\n b"});
  harmony.check({"<|channel|>analysis to=python code<|message|>x = 1<|call|>", "x = 1", ""});
  harmony.check({" to=functions.f<|channel|>commentary<|message|>{\"a\": tru",
                 "",
                 "",
                 {{"f", "{\"a\": tru"}}});
  harmony.check(
      {" to=functions.f<|channel|>commentary<|message|>\"{\\\"a\\\"", "", "", {{"f", "{\"a\""}}});
  harmony.check(
      {" to=functions.f<|channel|>commentary<|message|>\"ls\" -l", "", "", {{"f", "\"ls\" -l"}}});
  // The prompt may have got further.
  Family("openai", "openai_gptoss", "<|start|>assistant<|channel|>final<|message|>He")
      .check({"llo<|end|>", "", "llo"});
  Family("openai", "openai_gptoss", "<|start|>assistant<|channel|>")
      .check({"analysis<|message|>a", "a", ""});
  // Without a reasoning parser nothing is hidden.
  Family("openai", "none", "<|start|>assistant")
      .check(
          {"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b",
           "",
           "a\nb"});
}

// Tokens are skipped by their ids, before a parser sees text: what it sees was written out.
TEST(OutputParser, QuotedSpecialTokensStay) {
  const std::string quoted =
      "ends with <|im_end|>, <|eot_id|>, <｜end▁of▁sentence｜>, </s>, <|user|> or <|endoftext|>";
  for (const char* tools : {"hermes",
                            "qwen3_coder",
                            "glm45",
                            "deepseek_v3",
                            "deepseek_v31",
                            "deepseek_v32",
                            "llama3_json",
                            "mistral",
                            "kimi_k2"}) {
    Family(tools, "qwen3").check({"<think>" + quoted + "</think>" + quoted, quoted, quoted});
    Family(tools, "none").without_tools().check({quoted, "", quoted});
  }
  Family("openai", "openai_gptoss")
      .check({"<|channel|>final<|message|>" + quoted + "<|return|>", "", quoted});
  Family("hermes", "none")
      .check({"<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call><|im_end|>",
              "",
              "<|im_end|>",
              {{"f", "{}"}}});
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
