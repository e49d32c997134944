// Released templates over golden conversations: byte for byte what transformers renders.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tests/support/test_folders.h"
#include "tokenizer/chat_template/chat_template.h"

namespace atom {
namespace {

std::string shared_dir() {
  return shared_folder().value_or("");
}

OrderedJson read_ordered(const std::string& path) {
  const std::string text = read_file(path, size_t{64} << 20).value();
  return parse_ordered_json(text, path).value();
}

std::tm parse_time(const std::string& text) {
  std::tm time{};
  EXPECT_NE(strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time), nullptr) << text;
  return time;
}

// The conversation's keys that are not named arguments of a rendering are further variables.
Result<std::string> render(const ChatTemplate& chat_template,
                           const OrderedJson& conversation,
                           const OrderedJson& setup) {
  ChatTemplateInput input;
  OrderedJson extra = OrderedJson::object();
  for (const auto& [key, value] : conversation.items()) {
    if (key == "messages") {
      input.messages = &value;
    } else if (key == "tools") {
      input.tools = &value;
    } else if (key == "add_generation_prompt") {
      input.add_generation_prompt = value.get<bool>();
    } else {
      extra[key] = value;
    }
  }
  for (const auto& [key, value] : setup["tokens"].items()) input.special_tokens[key] = value;
  input.extra = &extra;
  input.now = parse_time(setup["now"]);
  return chat_template.render(input);
}

TEST(ChatTemplateGolden, ReleasedTemplatesRenderAsInTransformers) {
  const std::string root = shared_dir() + "/text-fixtures/chat";
  if (!file_exists(root + "/conversations.json")) GTEST_SKIP() << root << " is not there";
  const OrderedJson setup = read_ordered(root + "/conversations.json");
  int num_rendered = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (!entry.is_directory()) continue;
    const std::string folder = entry.path().string();
    const std::string source = read_file(folder + "/chat_template.jinja", 1 << 20).value();
    const auto chat_template = ChatTemplate::parse(source, entry.path().filename().string());
    ASSERT_TRUE(chat_template.ok()) << chat_template.status().message();
    const OrderedJson goldens = read_ordered(folder + "/golden.json");
    for (const auto& [name, golden] : goldens.items()) {
      SCOPED_TRACE(folder + " " + name);
      const auto text = render(*chat_template, setup["conversations"][name], setup);
      ++num_rendered;
      if (golden.contains("text")) {
        ASSERT_TRUE(text.ok()) << text.status().message();
        EXPECT_EQ(*text, golden["text"].get<std::string>());
      } else {
        EXPECT_FALSE(text.ok()) << golden["error"];
      }
    }
  }
  EXPECT_GE(num_rendered, 12 * 21);
}

TEST(ChatTemplateGolden, SmallModel) {
  const std::string path = shared_dir() + "/models/tldr-8m/chat_template.jinja";
  if (!file_exists(path)) GTEST_SKIP() << path << " is not there";
  const auto chat_template = ChatTemplate::parse(read_file(path, 1 << 20).value(), path);
  ASSERT_TRUE(chat_template.ok()) << chat_template.status().message();
  const OrderedJson messages =
      parse_ordered_json(
          R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": " yes\n"}])", "x")
          .value();
  ChatTemplateInput input;
  input.messages = &messages;
  EXPECT_EQ(chat_template->render(input).value(),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n yes\n<|im_end|>\n"
            "<|im_start|>assistant\n");
}

}  // namespace
}  // namespace atom
