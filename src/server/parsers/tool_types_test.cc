#include "server/parsers/tool_types.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

namespace atom::server {
namespace {

JsonTypes types_of_schema(const std::string& schema, const std::string& more = "") {
  const std::string text = R"([{"type": "function", "function": {"name": "f", "parameters": )"
                           R"({"type": "object", "properties": {"k": )" +
                           schema + "}" + more + "}}}]";
  return ToolTypes(OrderedJson::parse(text)).types_of("f", "k");
}

TEST(ToolTypes, Schemas) {
  EXPECT_EQ(types_of_schema(R"({"type": "string"})"), kStringType);
  EXPECT_EQ(types_of_schema(R"({"type": "integer"})"), kNumberType);
  EXPECT_EQ(types_of_schema(R"({"type": ["number", "null"]})"), kNumberType | kNullType);
  EXPECT_EQ(types_of_schema(R"({"type": "dict"})"), kObjectType);
  EXPECT_EQ(types_of_schema(R"({"type": "what"})"), kStringType);
  EXPECT_EQ(types_of_schema(R"({"enum": ["a", 1]})"), kStringType | kNumberType);
  EXPECT_EQ(types_of_schema(R"({"const": false})"), kBooleanType);
  EXPECT_EQ(types_of_schema(R"({"anyOf": [{"type": "array"}, {"oneOf": [{"type": "null"}]}]})"),
            kArrayType | kNullType);
  EXPECT_EQ(types_of_schema(R"({"properties": {}})"), kObjectType);
  EXPECT_EQ(types_of_schema(R"({"items": {}})"), kArrayType);
  EXPECT_EQ(types_of_schema("{}"), kAnyType);
  EXPECT_EQ(types_of_schema("true"), kAnyType);
  EXPECT_EQ(types_of_schema(R"({"$ref": "#/$defs/A"})",
                            R"(, "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"type": "number"}})"),
            kNumberType);
  EXPECT_EQ(types_of_schema(R"({"$ref": "#/$defs/none"})"), kAnyType);
  EXPECT_EQ(types_of_schema(R"({"$ref": "#/properties/k"})"), kAnyType);
}

TEST(ToolTypes, UnknownIsString) {
  const ToolTypes types(OrderedJson::parse(R"([3, {"name": "g", "parameters":
      {"properties": {"k": {"type": "boolean"}}}}, {"function": {"name": 1}}])"));
  EXPECT_EQ(types.types_of("g", "k"), kBooleanType);
  EXPECT_EQ(types.types_of("g", "x"), kStringType);
  EXPECT_EQ(types.types_of("f", "k"), kStringType);
  EXPECT_EQ(ToolTypes(OrderedJson::parse("{}")).types_of("f", "k"), kStringType);
}

// Many parameters that all refer to one large schema: the work is bounded.
TEST(ToolTypes, ReferencesToLargeSchemasAreCheap) {
  OrderedJson large = OrderedJson::array();
  for (int i = 0; i < 20'000; ++i) large.push_back({{"enum", {"a"}}});
  OrderedJson properties;
  for (int i = 0; i < 2000; ++i) properties[fmt::format("k{}", i)] = {{"$ref", "#/$defs/A"}};
  const OrderedJson tools = {{{"name", "f"},
                              {"parameters",
                               {{"properties", std::move(properties)},
                                {"$defs", {{"A", {{"anyOf", std::move(large)}}}}}}}}};
  const auto start = std::chrono::steady_clock::now();
  const ToolTypes types(tools);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_EQ(types.types_of("f", "k0"), kStringType);
  EXPECT_EQ(types.types_of("f", "k1999"), kAnyType);
}

TEST(JsonOfText, ReadsWhatTheTypesAllow) {
  EXPECT_EQ(json_of_text("1", kStringType), "\"1\"");
  EXPECT_EQ(json_of_text(" 1\n", kNumberType), "1");
  EXPECT_EQ(json_of_text("1.0", kNumberType), "1.0");
  EXPECT_EQ(json_of_text("01", kNumberType), "\"01\"");
  EXPECT_EQ(json_of_text("NaN", kNumberType), "\"NaN\"");
  EXPECT_EQ(json_of_text("TRUE", kBooleanType), "true");
  EXPECT_EQ(json_of_text("yes", kBooleanType), "\"yes\"");
  EXPECT_EQ(json_of_text("None", kObjectType), "null");
  EXPECT_EQ(json_of_text("null", kStringType | kNumberType), "\"null\"");
  EXPECT_EQ(json_of_text("null", kStringType | kNullType), "null");
  EXPECT_EQ(json_of_text("{\"a\": [1]}", kObjectType), "{\"a\": [1]}");
  EXPECT_EQ(json_of_text("{'a': 1}", kObjectType), "\"{'a': 1}\"");
  EXPECT_EQ(json_of_text("[1]", kObjectType), "[1]");
  EXPECT_EQ(json_of_text("\"a\"", kNumberType), "\"a\"");
  EXPECT_EQ(json_of_text("\"a\"", kAnyType), R"("\"a\"")");
  EXPECT_EQ(json_of_text("7", kAnyType), "7");
  EXPECT_EQ(json_of_text("", kNumberType), "\"\"");
}

}  // namespace
}  // namespace atom::server
