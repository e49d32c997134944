#include "tokenizer/chat_template/find_chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace atom {
namespace {

class FindChatTemplate : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "find_chat_template_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ + "/additional_chat_templates");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
  }
  std::string find(bool with_tools = false) const {
    const auto source = find_chat_template(folder_, with_tools);
    return source.ok() ? source->text : source.status().message();
  }

  std::string folder_;
};

TEST_F(FindChatTemplate, FileReplacesTheField) {
  write("chat_template.json", R"({"chat_template": "old"})");
  EXPECT_EQ(find(), "old");
  write("tokenizer_config.json", R"({"chat_template": "field"})");
  EXPECT_EQ(find(), "field");
  write("chat_template.jinja", "file");
  EXPECT_EQ(find(), "file");
  EXPECT_EQ(find(true), "file");
  write("additional_chat_templates/tool_use.jinja", "tools");
  EXPECT_EQ(find(), "file");
  EXPECT_EQ(find(true), "tools");
}

TEST_F(FindChatTemplate, ListOfNamedTemplates) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "d"},
                              {"name": "tool_use", "template": "t"}]})");
  EXPECT_EQ(find(), "d");
  EXPECT_EQ(find(true), "t");
  EXPECT_EQ(find_chat_template(folder_, true)->origin,
            folder_ + "/tokenizer_config.json (tool_use)");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "r"}]})");
  EXPECT_NE(find().find("there are: rag"), std::string::npos);
}

TEST_F(FindChatTemplate, SaysWhatIsWrong) {
  EXPECT_EQ(find_chat_template(folder_, false).status().code(), StatusCode::kNotFound);
  EXPECT_NE(find().find("no chat template"), std::string::npos);
  for (const char* config : {R"({"chat_template": 5})",
                             R"({"chat_template": [5]})",
                             R"({"chat_template": [{"name": "default"}]})"}) {
    write("tokenizer_config.json", config);
    EXPECT_NE(find().find("tokenizer_config.json: chat_template must be"), std::string::npos);
  }
  write("tokenizer_config.json", "[]");
  EXPECT_NE(find().find("must hold an object"), std::string::npos);
  write("tokenizer_config.json", "{");
  EXPECT_NE(find().find("invalid JSON"), std::string::npos);
}

}  // namespace
}  // namespace atom
