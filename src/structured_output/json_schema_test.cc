#include "structured_output/json_schema.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace atom {
namespace {

struct SchemaCase {
  const char* schema;
  const char* expected;  // the prepared schema, or what the error begins with
};

Result<OrderedJson> prepare(const std::string& text) {
  return prepare_json_schema(OrderedJson::parse(text), "schema");
}

TEST(JsonSchema, PreparedForms) {
  const SchemaCase cases[] = {
      {R"(true)", R"({})"},
      {R"({"title": "T", "description": "D", "x-own": 3})", R"({})"},
      {R"({"type": "boolean", "default": true})", R"({"type":"boolean"})"},
      {R"({"const": {"a": [1]}})", R"({"enum":[{"a":[1]}]})"},
      {R"({"type": "string", "enum": ["a", 1, "b"]})", R"({"enum":["a","b"]})"},
      {R"({"type": ["string", "null"]})", R"({"anyOf":[{"type":"string"},{"type":"null"}]})"},
      {R"({"type": ["integer", "number"]})", R"({"type":"number"})"},
      {R"({"minLength": 2})", R"({"type":"string","minLength":2})"},
      {R"({"type": "string", "minLength": 1, "maxLength": 3})",
       R"({"type":"string","minLength":1,"maxLength":3})"},
      {R"({"type": "integer", "exclusiveMinimum": 1.5, "maximum": 7.5})",
       R"({"type":"integer","maximum":7,"minimum":2})"},
      {R"({"type": "integer", "minimum": 5, "exclusiveMinimum": 2.5})",
       R"({"type":"integer","minimum":5})"},
      {R"({"type": "integer", "multipleOf": 7})", R"({"type":"integer","multipleOf":7})"},
      {R"({"type": "number", "multipleOf": 5, "minimum": -7, "exclusiveMaximum": 10})",
       R"({"enum":[-5,0,5]})"},
      {R"({"type": "object"})", R"({"type":"object","additionalProperties":true})"},
      {R"({"properties": {"b": {}, "a": true}})",
       R"({"type":"object","properties":{"b":{},"a":{}},"additionalProperties":false})"},
      {R"({"type": "object", "required": ["a"], "additionalProperties": {"type": "null"}})",
       R"({"type":"object","properties":{"a":{"type":"null"}},"required":["a"],)"
       R"("additionalProperties":{"type":"null"}})"},
      {R"({"type": "array"})", R"({"type":"array","items":{}})"},
      {R"({"type": "array", "prefixItems": [{"type": "null"}, true]})",
       R"({"type":"array","prefixItems":[{"type":"null"},{}],"items":false})"},
      {R"({"allOf": [{"type": "null"}]})", R"({"type":"null"})"},
      {R"({"type": "object", "anyOf": [{"properties": {"a": {}}}, {"type": "object"}]})",
       R"({"anyOf":[{"type":"object","properties":{"a":{}},"additionalProperties":false},)"
       R"({"type":"object","additionalProperties":true}]})"},
      {R"({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#"}}}})",
       R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"array","items":{"$ref":"#"}}}})"},
      {R"({"oneOf": [{"type": "string"}, {"type": "integer"}]})",
       R"({"anyOf":[{"type":"string"},{"type":"integer"}]})"},
      {R"({"type": "array", "items": {"type": "null"}, "uniqueItems": false})",
       R"({"type":"array","items":{"type":"null"}})"},
  };
  for (const SchemaCase& c : cases) {
    const Result<OrderedJson> prepared = prepare(c.schema);
    ASSERT_TRUE(prepared.ok()) << c.schema << ": " << prepared.status().message();
    EXPECT_EQ(prepared->dump(), OrderedJson::parse(c.expected).dump()) << c.schema;
  }
}

TEST(JsonSchema, ErrorsNameThePlace) {
  const SchemaCase cases[] = {
      {R"(3)", "schema: expected an object or a boolean"},
      {R"({"properties": {"a": {"not": {}}}})", "schema.properties.a.not: this keyword"},
      {R"({"items": {"uniqueItems": true}})", "schema.items.uniqueItems: this keyword"},
      {R"({"if": {}, "then": {}})", "schema.if: "},
      {R"({"type": "strnig"})", "schema.type: there is no type 'strnig'"},
      {R"({"type": 3})", "schema.type: "},
      {R"({"type": []})", "schema.type: "},
      {R"({"properties": []})", "schema.properties: expected an object"},
      {R"({"required": "a"})", "schema.required: expected a list"},
      {R"({"required": ["a"], "additionalProperties": false})", "schema.required: 'a' is not"},
      {R"({"$defs": {"a": {"format": "color"}}, "type": "null"})",
       "schema.$defs.a.format: 'color'"},
      {R"({"items": [{}]})", "schema.items: a list of schemas"},
      {R"({"prefixItems": [{}, {"minItems": -1}]})", "schema.prefixItems[1].minItems: "},
      {R"({"minLength": 3, "maxLength": 2})", "schema: no number of characters"},
      {R"({"maxLength": 100000})", "schema.maxLength: expected at most"},
      {R"({"pattern": "a", "maxLength": 2})", "schema: of pattern, format and lengths"},
      {R"s({"pattern": "((a{1,1000}){1,1000})"})s", "schema.pattern: with its repetitions"},
      {R"({"pattern": "^[ -~]{1,129}$"})", "schema.pattern: only repetitions of up to 128"},
      {R"({"pattern": "^[^q]{0,9}[\"]{3}$"})", "schema.pattern: this pattern is not supported"},
      {R"({"pattern": "("})", "schema.pattern: "},
      {R"({"pattern": "ü"})", "schema.pattern: only patterns of printable ASCII"},
      {R"({"multipleOf": 0})", "schema.multipleOf: expected a number > 0"},
      {R"({"multipleOf": 0.5})", "schema.multipleOf: only whole numbers"},
      {R"({"type": "integer", "multipleOf": 3, "minimum": 1})", "schema.multipleOf: with bounds"},
      {R"({"minimum": "1"})", "schema.minimum: expected a number"},
      {R"({"enum": []})", "schema.enum: expected a list"},
      {R"({"type": "string", "const": 3})", "schema.const: no value is of the type"},
      {R"({"enum": [1], "minimum": 0})", "schema: minimum is not supported beside enum"},
      {R"({"anyOf": [{}], "oneOf": [{}]})", "schema: anyOf and oneOf"},
      {R"({"anyOf": [{}], "properties": {}})", "schema: properties is not supported beside anyOf"},
      {R"({"anyOf": [{"type": "null"}, {"items": false, "not": {}}]})", "schema.anyOf[1].not: "},
      {R"({"allOf": [{}, {}]})", "schema.allOf: several schemas"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "schema.oneOf: branches 0 and 1"},
      {R"({"patternProperties": {"^a": {}, "^b": {}}})", "schema.patternProperties: only one"},
      {R"({"$ref": "#/$defs/b"})", "schema.$ref: '#/$defs/b' leads to no schema"},
      {R"({"$ref": "http://other/"})", "schema.$ref: "},
      {R"({"$ref": "#"})", "schema.$ref: '#' leads back to itself"},
      {R"({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}},
           "$ref": "#/$defs/a"})",
       "schema.$ref: '#/$defs/a' leads back to itself"},
      {R"({"properties": {"a": false}})", "schema.properties.a: false allows nothing"},
  };
  for (const SchemaCase& c : cases) {
    const Result<OrderedJson> prepared = prepare(c.schema);
    ASSERT_FALSE(prepared.ok()) << c.schema << " gives " << prepared->dump();
    EXPECT_TRUE(prepared.status().message().starts_with(c.expected))
        << c.schema << ": " << prepared.status().message();
  }
}

TEST(JsonSchema, ExclusiveBranches) {
  const char* exclusive[] = {
      R"({"oneOf": [{"const": 1}, {"enum": [2, "a"]}, {"type": "boolean"}]})",
      R"({"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
          "discriminator": {"propertyName": "kind"}, "$defs": {
          "cat": {"type": "object", "required": ["kind"], "properties": {"kind": {"const": "cat"}}},
          "dog": {"type": "object", "required": ["kind"], "properties": {"kind": {"const": "dog"}}}
          }})",
  };
  for (const char* schema : exclusive) {
    EXPECT_TRUE(prepare(schema).ok()) << prepare(schema).status().message();
  }
  EXPECT_FALSE(prepare(R"({"oneOf": [{"const": 1}, {"type": "number"}]})").ok());
  // "kind" may be missing from both.
  EXPECT_FALSE(prepare(R"({"oneOf": [
      {"type": "object", "properties": {"kind": {"const": "a"}}},
      {"type": "object", "properties": {"kind": {"const": "b"}}}]})")
                   .ok());
}

TEST(JsonSchema, LargeSchemasAreRefusedFast) {
  OrderedJson deep = {{"type", "null"}};
  for (int i = 0; i < 60; ++i) deep = {{"type", "array"}, {"items", std::move(deep)}};
  EXPECT_FALSE(prepare_json_schema(deep, "schema").ok());
  OrderedJson choices = OrderedJson::array();
  for (int i = 0; i < 1'500; ++i) choices.push_back(i);
  EXPECT_FALSE(prepare_json_schema({{"enum", choices}}, "schema").ok());
  // Many references, each to a long chain of others.
  OrderedJson chain = OrderedJson::object();
  for (int i = 0; i < 3'000; ++i) {
    chain[std::to_string(i)] = {{"$ref", "#/$defs/" + std::to_string(i + 1)}};
  }
  chain["3000"] = {{"type", "null"}};
  const OrderedJson linked = {{"$ref", "#/$defs/0"}, {"$defs", std::move(chain)}};
  EXPECT_TRUE(prepare_json_schema(linked, "schema").ok());
}

}  // namespace
}  // namespace atom
