#include <gtest/gtest.h>

#include <set>

#include "server/parsers/output_parser.h"
#include "server/parsers/parse_answer_test.h"

namespace atom::server {
namespace {

std::string name_of(const OutputFormatChoice& choice, std::string_view chat_template = "") {
  const auto format = make_output_format(choice, chat_template);
  return format.ok() ? std::string((*format)->name()) : format.status().message();
}

TEST(OutputFormat, Detection) {
  EXPECT_EQ(name_of({}), "plain");
  EXPECT_EQ(name_of({}, "<|im_start|>user"), "plain");
  EXPECT_EQ(name_of({}, "'<think>\n'"), "think");
  EXPECT_EQ(name_of({}, "<tool_call>\n{\"name\""), "hermes");
  EXPECT_EQ(name_of({}, "<tool_call>\n<function=f>\n<parameter=k>"), "qwen3_coder");
  EXPECT_EQ(name_of({}, "<tool_call>{name}\n<arg_key>"), "glm45");
  EXPECT_EQ(name_of({}, "<｜tool▁calls▁begin｜>'\n```json"), "deepseek_v3");
  EXPECT_EQ(name_of({}, "<｜tool▁calls▁begin｜>"), "deepseek_v31");
  EXPECT_EQ(name_of({}, "dsml_token = '｜DSML｜'"), "deepseek_v32");
  EXPECT_EQ(name_of({}, "<|python_tag|>"), "llama3_json");
  EXPECT_EQ(name_of({}, "<|start_header_id|> {\"name\": f, \"parameters\": d}"), "llama3_json");
  EXPECT_EQ(name_of({}, "[TOOL_CALLS]"), "mistral");
  EXPECT_EQ(name_of({}, "<|tool_calls_section_begin|>"), "kimi_k2");
  EXPECT_EQ(name_of({}, "<|channel|>analysis<|message|>"), "harmony");
}

TEST(OutputFormat, Names) {
  for (const char* name : {"hermes",
                           "qwen3_coder",
                           "glm45",
                           "deepseek_v3",
                           "deepseek_v31",
                           "deepseek_v32",
                           "llama3_json",
                           "mistral",
                           "kimi_k2"}) {
    EXPECT_EQ(name_of({name, "qwen3"}), name);
    EXPECT_EQ(name_of({name, "auto"}, "<|channel|><|message|>"), name);
  }
  EXPECT_EQ(name_of({"openai", "openai_gptoss"}), "harmony");
  EXPECT_EQ(name_of({"none", "auto"}, "<|channel|><|message|>"), "harmony");
  EXPECT_EQ(name_of({"auto", "openai_gptoss"}), "harmony");
  EXPECT_EQ(name_of({"none", "none"}, "<tool_call><think>"), "plain");
  EXPECT_EQ(name_of({"none", "auto"}, "<tool_call><think>"), "think");
}

// The names by which recipes of other servers choose the parsers of the families served here.
TEST(OutputFormat, NamesOfOtherServers) {
  const std::pair<const char*, const char*> tools[] = {
      {"qwen25", "hermes"},
      {"qwen3_xml", "qwen3_coder"},
      {"glm46", "glm45"},
      {"glm47", "glm45"},
      {"deepseekv3", "deepseek_v3"},
      {"deepseekv31", "deepseek_v31"},
      {"deepseekv32", "deepseek_v32"},
      {"llama3", "llama3_json"},
      {"llama4_json", "llama3_json"},
      {"openai", "harmony"},
      {"gpt-oss", "harmony"},
  };
  for (const auto& [name, format] : tools) EXPECT_EQ(name_of({name, "none"}), format);
  for (const char* name :
       {"qwen3", "deepseek_v3", "deepseek_v31", "deepseek_v32", "glm45", "kimi_k2"}) {
    EXPECT_EQ(name_of({"none", name}), "think") << name;
  }
  for (const char* name : {"deepseek_r1", "deepseek-r1", "qwen3-thinking"}) {
    EXPECT_EQ(name_of({"none", name}), "think_first") << name;
  }
  EXPECT_EQ(name_of({"none", "mistral"}), "mistral");
}

TEST(OutputFormat, MarksOfThoughts) {
  EXPECT_FALSE(format_named("hermes", "none")->thinking_marks().has_value());
  EXPECT_EQ(format_named("hermes", "qwen3")->thinking_marks()->begin, "<think>");
  EXPECT_FALSE(format_named("hermes", "qwen3")->thinking_marks()->comes_first);
  EXPECT_TRUE(format_named("none", "deepseek_r1")->thinking_marks()->comes_first);
  EXPECT_EQ(format_named("mistral", "mistral")->thinking_marks()->closing, "[/THINK]");
  EXPECT_EQ(format_named("openai", "openai_gptoss")->thinking_marks()->end, "<|end|>");
  EXPECT_FALSE(format_named("openai", "none")->thinking_marks().has_value());
}

TEST(OutputFormat, KeptSpecialTokens) {
  using Tokens = std::set<std::string>;
  const auto kept = [](const char* tools, const char* reasoning, bool with_tools) {
    const auto format = format_named(tools, reasoning);
    const std::vector<std::string> tokens = format->kept_special_tokens(with_tools);
    return Tokens(tokens.begin(), tokens.end());
  };
  EXPECT_EQ(kept("none", "none", true), Tokens());
  EXPECT_EQ(kept("none", "qwen3", true), (Tokens{"<think>", "</think>"}));
  EXPECT_EQ(kept("hermes", "none", true), (Tokens{"<tool_call>", "</tool_call>"}));
  EXPECT_EQ(kept("hermes", "qwen3", false), (Tokens{"<think>", "</think>"}));
  EXPECT_EQ(kept("mistral", "mistral", true),
            (Tokens{"[THINK]", "[/THINK]", "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"}));
  EXPECT_EQ(kept("llama3_json", "none", true), Tokens{"<|python_tag|>"});
  EXPECT_EQ(kept("llama3_json", "none", false), Tokens());
  EXPECT_EQ(kept("kimi_k2", "none", true),
            (Tokens{"<|tool_calls_section_begin|>",
                    "<|tool_calls_section_end|>",
                    "<|tool_call_begin|>",
                    "<|tool_call_argument_begin|>",
                    "<|tool_call_end|>"}));
  EXPECT_EQ(kept("glm45", "none", true),
            (Tokens{"<tool_call>",
                    "</tool_call>",
                    "<arg_key>",
                    "</arg_key>",
                    "<arg_value>",
                    "</arg_value>"}));
  EXPECT_TRUE(kept("deepseek_v32", "none", true).contains("｜DSML｜"));
  for (const bool with_tools : {false, true}) {
    EXPECT_EQ(kept("openai", "openai_gptoss", with_tools),
              (Tokens{"<|start|>",
                      "<|channel|>",
                      "<|constrain|>",
                      "<|message|>",
                      "<|end|>",
                      "<|call|>",
                      "<|return|>"}));
  }
}

TEST(OutputFormat, Errors) {
  EXPECT_EQ(
      name_of({"hermess", "auto"}),
      "there is no tool call parser 'hermess'; it can be auto, none, hermes, qwen3_coder, "
      "glm45, deepseek_v3, deepseek_v31, deepseek_v32, llama3_json, mistral, kimi_k2, openai, "
      "qwen3_xml, glm46, glm47, llama4_json, harmony, gpt_oss, gpt-oss, qwen, qwen25, glm, "
      "deepseekv3, deepseekv31, deepseekv32, llama3");
  EXPECT_EQ(name_of({"auto", "x"}),
            "there is no reasoning parser 'x'; it can be auto, none, qwen3, deepseek_r1, "
            "deepseek_v3, deepseek_v31, deepseek_v32, glm45, kimi_k2, mistral, openai_gptoss, "
            "harmony, gpt_oss, gpt-oss, qwen3-thinking, deepseek-r1, deepseek-v3");
  EXPECT_EQ(name_of({"hermes", "openai_gptoss"}),
            "tool call parser 'hermes' and reasoning parser 'openai_gptoss' do not go together: "
            "only one is harmony");
  EXPECT_EQ(name_of({"openai", "qwen3"}),
            "tool call parser 'openai' and reasoning parser 'qwen3' do not go together: only one "
            "is harmony");
}

}  // namespace
}  // namespace atom::server
