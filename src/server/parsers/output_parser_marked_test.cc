// Answers written by hand after the chat templates, of the families whose calls stand between tags
// and special tokens: right, broken and cut off.
#include <gtest/gtest.h>

#include "server/parsers/output_parser_family_test.h"

namespace atom::server {
namespace {

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

}  // namespace
}  // namespace atom::server
