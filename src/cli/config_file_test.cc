#include "cli/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atom::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> parsed(std::string_view text) {
  const Result<std::vector<std::string>> args = parse_config_file(text, "f.yaml");
  EXPECT_TRUE(args.ok()) << args.status().message();
  return args.ok() ? *args : std::vector<std::string>();
}

TEST(ConfigFile, HasOneOptionALine) {
  EXPECT_THAT(
      parsed("# vLLM's\n---\nmodel: org/name  # the model\nport: 8001\r\n\nuvicorn-log-level: "
             "\"in#fo\"\n"),
      ElementsAre("--model=org/name", "--port=8001", "--uvicorn-log-level=in#fo"));
  EXPECT_THAT(parsed("a: 'it''s'\nb: \"x\\\"y\\n\"\nc:\nd: null\n"),
              ElementsAre("--a=it's", "--b=x\"y\n"));
}

TEST(ConfigFile, BooleansAreSwitches) {
  EXPECT_THAT(parsed("enforce-eager: true\nenable-prefix-caching: false"),
              ElementsAre("--enforce-eager", "--no-enable-prefix-caching"));
}

TEST(ConfigFile, ListsAreRepeatedOptions) {
  EXPECT_THAT(
      parsed("served-model-name: [a, 'b']\napi-key:\n- k1\n  - k2\n"),
      ElementsAre(
          "--served-model-name=a", "--served-model-name=b", "--api-key=k1", "--api-key=k2"));
}

TEST(ConfigFile, ErrorsNameTheLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"a: 1\nb", "line 2: expected 'option: value'"},
      {"a: 1\n  b: 2", "line 2: nested"},
      {"- x", "line 1: an item without a list"},
      {"a: 'x", "line 1: a quote"},
      {"a: |", "line 1: expected a plain value"},
      {"config: x", "line 1: a file cannot"}};
  for (const auto& [text, message] : cases) {
    const Result<std::vector<std::string>> args = parse_config_file(text, "f.yaml");
    ASSERT_FALSE(args.ok()) << text;
    EXPECT_THAT(args.status().message(), HasSubstr(message)) << text;
    EXPECT_THAT(args.status().message(), HasSubstr("f.yaml")) << text;
  }
}

TEST(ConfigFile, AMissingFileIsAnError) {
  const std::vector<std::string> args = {"--config", "/nonexistent/f.yaml", "--port", "1"};
  EXPECT_FALSE(expand_config_files(args).ok());
  const std::vector<std::string> without = {"--port", "1"};
  EXPECT_THAT(*expand_config_files(without), ElementsAre("--port", "1"));
}

}  // namespace
}  // namespace atom::cli
