// Round trips through released chat templates: what a template writes for an assistant's tool calls
// is parsed back into the conversation's own names and arguments, with the format that is detected
// from the template.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "server/parsers/parse_answer_test.h"
#include "tests/support/test_folders.h"

namespace atom::server {
namespace {

struct Model {
  std::string folder;
  std::string format;
  std::string opener;  // in front of what the assistant writes
  std::string end;     // behind it
  bool keeps_content = true;
};

const std::vector<Model>& models() {
  static const std::vector<Model> all = {
      {"GLM-4.6", "glm45", "<|assistant|>", "<|observation|>"},
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
       "hermes",
       "<|im_start|>assistant\n",
       "<|im_end|>",
       false},
      {"Qwen-Qwen3-0.6B", "hermes", "<|im_start|>assistant\n", "<|im_end|>"},
      {"Qwen3-Coder", "qwen3_coder", "<|im_start|>assistant\n", "<|im_end|>"},
      {"Qwen3.5-4B", "qwen3_coder", "<|im_start|>assistant\n", "<|im_end|>"},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
       "deepseek_v3",
       "<｜Assistant｜>",
       "<｜end▁of▁sentence｜>",
       false},
      {"deepseek-ai-DeepSeek-V3.1", "deepseek_v31", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"},
      {"deepseek-ai-DeepSeek-V3.2", "deepseek_v32", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"},
      {"meta-llama-Llama-3.1-8B-Instruct",
       "llama3_json",
       "<|start_header_id|>assistant<|end_header_id|>\n\n",
       "<|eot_id|>"},
      {"mistralai-Mistral-Nemo-Instruct-2407", "mistral", "[/INST]", "</s>"},
      {"moonshotai-Kimi-K2", "kimi_k2", "<|im_assistant|>assistant<|im_middle|>", "<|im_end|>"},
      {"openai-gpt-oss-120b", "harmony", "<|start|>assistant", "<|call|>", false},
  };
  return all;
}

OrderedJson read_ordered(const std::string& path) {
  return parse_ordered_json(read_file(path, size_t{64} << 20).value(), path).value();
}

const OrderedJson* first_with_calls(const OrderedJson& conversation) {
  for (const OrderedJson& message : conversation["messages"]) {
    if (message.contains("tool_calls")) return &message;
  }
  return nullptr;
}

void check_calls(const Model& model, const OrderedJson& message, const ParsedAnswer& answer) {
  const OrderedJson& calls = message["tool_calls"];
  // gpt-oss writes one call a turn.
  const size_t num_calls = model.format == "harmony" ? 1 : calls.size();
  ASSERT_EQ(answer.calls.size(), num_calls) << to_string(answer);
  for (size_t i = 0; i < num_calls; ++i) {
    const OrderedJson& function = calls[i]["function"];
    EXPECT_EQ(answer.calls[i].name, function["name"].get<std::string>());
    const std::string arguments = function["arguments"].is_string()
                                      ? function["arguments"].get<std::string>()
                                      : function["arguments"].dump();
    EXPECT_EQ(Json::parse(answer.calls[i].arguments), Json::parse(arguments));
  }
  if (model.keeps_content && message["content"].is_string()) {
    EXPECT_EQ(answer.content, message["content"].get<std::string>());
  }
}

TEST(OutputParserGolden, TemplatesAreReadBack) {
  const std::string root = shared_folder().value_or("") + "/text-fixtures/chat";
  if (!file_exists(root + "/conversations.json")) GTEST_SKIP() << root << " is not there";
  const OrderedJson conversations = read_ordered(root + "/conversations.json")["conversations"];
  int num_checked = 0;
  for (const Model& model : models()) {
    const std::string folder = root + "/" + model.folder;
    const std::string chat_template = read_file(folder + "/chat_template.jinja", 1 << 20).value();
    auto format = make_output_format({}, chat_template);
    ASSERT_TRUE(format.ok()) << format.status().message();
    EXPECT_EQ((*format)->name(), model.format) << model.folder;
    EXPECT_FALSE((*format)->kept_special_tokens(/*with_tools=*/true).empty());
    const OrderedJson golden = read_ordered(folder + "/golden.json");
    for (const auto& [name, conversation] : conversations.items()) {
      const OrderedJson* message = first_with_calls(conversation);
      if (message == nullptr || !golden.contains(name) || !golden[name].contains("text")) continue;
      SCOPED_TRACE(model.folder + " " + name);
      const std::string text = golden[name]["text"];
      const size_t opener = text.find(model.opener);
      ASSERT_NE(opener, std::string::npos);
      const size_t begin = opener + model.opener.size();
      const size_t end = text.find(model.end, begin);
      const ParseSetup setup = {format->get(), text.substr(0, begin), &conversation.at("tools")};
      check_calls(model, *message, parse_in_every_way(setup, text.substr(begin, end - begin)));
      ++num_checked;
    }
  }
  EXPECT_GE(num_checked, 35);
}

// Where the templates of thinking models leave the answer.
TEST(OutputParserGolden, PromptsOpenTheReasoning) {
  const std::string root = shared_folder().value_or("") + "/text-fixtures/chat";
  if (!file_exists(root + "/conversations.json")) GTEST_SKIP() << root << " is not there";
  int num_checked = 0;
  for (const Model& model : models()) {
    const std::string folder = root + "/" + model.folder;
    const auto format =
        make_output_format({}, read_file(folder + "/chat_template.jinja", 1 << 20).value());
    const OrderedJson golden = read_ordered(folder + "/golden.json");
    const bool thinks = model.format != "harmony" && model.format != "kimi_k2" &&
                        model.format != "mistral" && model.format != "llama3_json" &&
                        model.folder != "Qwen3-Coder" && model.format != "hermes";
    for (const char* name : {"thinking_on", "thinking_off"}) {
      if (!thinks || !golden[name].contains("text")) continue;
      SCOPED_TRACE(model.folder + " " + name);
      const bool on = name == std::string("thinking_on");
      const ParseSetup setup = {format->get(), golden[name]["text"].get<std::string>()};
      // The model opens its reasoning itself where the template does not.
      const bool opens = setup.prompt_tail.ends_with("<|assistant|>");
      const ParsedAnswer answer = parse_in_every_way(
          setup, on ? std::string(opens ? "\n<think>" : "") + "so\n</think>\n\nyes" : "yes");
      EXPECT_EQ(answer.reasoning, on ? "so" : "");
      EXPECT_EQ(answer.content, "yes");
      ++num_checked;
    }
  }
  EXPECT_GE(num_checked, 8);
}

}  // namespace
}  // namespace atom::server
