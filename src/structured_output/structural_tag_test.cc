#include "structured_output/structural_tag.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

namespace atom {
namespace {

std::string error_of(const Result<OrderedJson>& format) {
  return format.ok() ? "" : format.status().message();
}

TEST(StructuralTag, ErrorsBeginWithTheField) {
  EXPECT_TRUE(error_of(regex_format("(", "structured_outputs.regex"))
                  .starts_with("structured_outputs.regex: "));
  EXPECT_TRUE(error_of(regex_format("a(?=b)", "regex")).starts_with("regex: "));
  EXPECT_TRUE(error_of(regex_format("", "regex")).starts_with("regex: "));
  EXPECT_TRUE(error_of(ebnf_format("root ::= other", "grammar")).starts_with("grammar: "));
  EXPECT_TRUE(error_of(ebnf_format("start ::= \"a\"", "grammar")).starts_with("grammar: "));
  EXPECT_TRUE(error_of(choice_format({}, "choice")).starts_with("choice: "));
  EXPECT_TRUE(error_of(choice_format({"a", ""}, "choice")).starts_with("choice[1]: "));
  EXPECT_TRUE(error_of(json_schema_format({{"not", true}}, "schema")).starts_with("schema.not: "));
  const auto tag = OrderedJson::parse(R"({"type": "structural_tag", "format": {"type": "tag",
      "begin": "<a>", "content": {"type": "json_schema", "json_schema": {"contains": {}}},
      "end": "</a>"}})");
  EXPECT_TRUE(error_of(structural_tag_format(tag, "tag"))
                  .starts_with("tag.format.content.json_schema.contains: "));
}

TEST(StructuralTag, WholeTagsAreChecked) {
  EXPECT_TRUE(structural_tag_text(json_object_format(), "response_format").ok());
  const auto bad = structural_tag_text({{"type", "tag"}, {"begin", "<a>"}}, "structural_tag");
  ASSERT_FALSE(bad.ok());
  EXPECT_TRUE(bad.status().message().starts_with("structural_tag: ")) << bad.status().message();
}

TEST(StructuralTag, OlderForm) {
  const auto tag = OrderedJson::parse(R"({"type": "structural_tag",
      "structures": [{"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"}],
      "triggers": ["<f"]})");
  Result<OrderedJson> format = structural_tag_format(tag, "tag");
  ASSERT_TRUE(format.ok()) << format.status().message();
  EXPECT_TRUE(structural_tag_text(*std::move(format), "tag").ok());
}

// What is in limits is read fast; what is not is refused fast.
TEST(StructuralTag, HostileTexts) {
  std::string deep;
  for (int i = 0; i < 4'000; ++i) deep += '(';
  std::string many;
  for (int i = 0; i < 2'000; ++i) many += "(a|";
  const std::string patterns[] = {"((a{1,1000}){1,1000})",
                                  "(a*)*b",
                                  "(a|a)*b",
                                  "((a+)+)+b",
                                  "(a|b)*a(a|b){20}",
                                  "[a-z]{4000}[0-9]{4000}",
                                  "(.*a){50}",
                                  deep,
                                  deep + "a" + std::string(4'000, ')'),
                                  many};
  for (const std::string& pattern : patterns) {
    const auto begin = std::chrono::steady_clock::now();
    Result<OrderedJson> format = regex_format(pattern, "regex");
    if (format.ok()) (void)structural_tag_text(*std::move(format), "regex");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10))
        << pattern.substr(0, 40);
  }
  std::string rules = "root ::= r0\n";
  for (int i = 0; i < 1'000; ++i) {
    rules += fmt::format("r{} ::= r{} r{} | \"a\"\n", i, (i + 1) % 1'000, (i + 7) % 1'000);
  }
  (void)ebnf_format(rules, "grammar");
  (void)ebnf_format("root ::= root root | root | \"\"", "grammar");
}

}  // namespace
}  // namespace atom
