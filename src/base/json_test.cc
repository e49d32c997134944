#include "base/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace atom {
namespace {

std::string error_of(std::string_view text, const JsonLimits& limits = {}) {
  return parse_json(text, "x.json", limits).status().message();
}

TEST(Json, ParsesNestedValues) {
  const Json json = parse_json(R"({"b": [1, -2, 2.5, null, true, "s"], "a": {}})", "x").value();
  EXPECT_EQ(json.dump(), R"({"a":{},"b":[1,-2,2.5,null,true,"s"]})");
}

TEST(Json, OrderedKeepsTheOrderOfTheText) {
  const OrderedJson json = parse_ordered_json(R"({"b": 1, "a": {"z": 0, "y": 1}})", "x").value();
  EXPECT_EQ(json.dump(), R"({"b":1,"a":{"z":0,"y":1}})");
}

TEST(Json, NamesTheFileAndThePlace) {
  EXPECT_NE(error_of("{\"a\": 1,\n ]").find("x.json: invalid JSON: "), std::string::npos);
  EXPECT_NE(error_of("{\"a\": 1,\n ]").find("line 2"), std::string::npos);
}

TEST(Json, RefusesWhatTheLimitsForbid) {
  EXPECT_NE(error_of(R"({"a": 1, "a": 2})").find("duplicate key 'a'"), std::string::npos);
  EXPECT_NE(error_of("[[[1]]]", {.max_depth = 2}).find("deeper than 2"), std::string::npos);
  EXPECT_NE(error_of("[1, 2, 3]", {.max_nodes = 3}).find("more than 3"), std::string::npos);
  EXPECT_NE(error_of("[1, 2]", {.max_bytes = 5}).find("over the limit"), std::string::npos);
  EXPECT_NE(error_of(R"({"a": 1, "b": 2})", {.max_keys_per_object = 1}).find("than 1 keys"),
            std::string::npos);
}

TEST(Json, RefusesTextThatIsNotJson) {
  for (const char* text : {"", "{", "[1,]", "NaN", "{} {}", "'a'", "\"\xff\"", "01", "+1"}) {
    EXPECT_FALSE(parse_json(text, "x").ok()) << text;
  }
}

std::string repeated(std::string_view part, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += part;
  return text;
}

TEST(Json, MemoryIsAMultipleOfTheText) {
  // Honest documents: token ids, texts, schemas.
  const std::string honest[] = {
      std::string("[") + repeated("5,", 1 << 20) + "5]",
      std::string("[") + repeated(R"({"role":"user","content":"x"},)", 1 << 17) + "1]",
      std::string(R"({"p":[)") + repeated(R"({"type":"string"},)", 1 << 17) + "1]}"};
  for (const std::string& text : honest) {
    const auto json = parse_ordered_json(text, "x", {.max_nodes = 1 << 23});
    EXPECT_TRUE(json.ok()) << json.status().message();
  }
  for (const char* part : {"[],", "{},", "\"\",", R"({"":[]},)", R"([[]],)"}) {
    EXPECT_TRUE(parse_ordered_json(std::string("[") + repeated(part, 1000) + "1]", "x").ok())
        << part;
    for (const size_t count : {size_t{1} << 18, size_t{1} << 19}) {
      const auto json = parse_ordered_json(
          std::string("[") + repeated(part, count) + "1]", "x", {.max_nodes = 1 << 24});
      EXPECT_NE(json.status().message().find("memory for each"), std::string::npos) << part;
    }
  }
}

TEST(Json, ManyKeysCostNoMoreThanTheirComparison) {
  std::string text = "{";
  for (int i = 0; i < 60'000; ++i) text += fmt::format("\"key{}\":0,", i);
  EXPECT_TRUE(parse_ordered_json(text + "\"x\":1}", "x").ok());
  EXPECT_TRUE(parse_json(text + "\"x\":1}", "x").ok());
  for (const auto& status : {parse_ordered_json(text + "\"key7\":1}", "x").status(),
                             parse_json(text + "\"key7\":1}", "x").status()}) {
    EXPECT_NE(status.message().find("duplicate key 'key7'"), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace atom
