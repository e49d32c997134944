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

}  // namespace
}  // namespace atom
