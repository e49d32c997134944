#include "server/openai/schema_sampler.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"

namespace atom::server {
namespace {

const std::set<std::string> kKnownKeywords = {"$ref",
                                              "anyOf",
                                              "allOf",
                                              "not",
                                              "type",
                                              "enum",
                                              "const",
                                              "minimum",
                                              "maximum",
                                              "items",
                                              "minItems",
                                              "maxItems",
                                              "minLength",
                                              "maxLength",
                                              "pattern",
                                              "required",
                                              "maxProperties",
                                              "properties",
                                              "additionalProperties",
                                              "propertyNames",
                                              "exclusiveMinimum",
                                              "description",
                                              "default"};

size_t num_characters(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x80 || c >= 0xC0; }));
}

}  // namespace

const OrderedJson& SchemaSampler::resolve(const OrderedJson& schema) const {
  if (!schema.contains("$ref")) return schema;
  const auto& reference = schema["$ref"].get_ref<const std::string&>();
  CHECK(reference.starts_with("#/"));
  return document_->at(OrderedJson::json_pointer(reference.substr(1)));
}

bool SchemaSampler::fits(const OrderedJson& value, const OrderedJson& unresolved) {
  const OrderedJson& schema = resolve(unresolved);
  for (auto keyword = schema.begin(); keyword != schema.end(); ++keyword) {
    CHECK(kKnownKeywords.contains(keyword.key()));
  }
  const auto fits_one = [&](const OrderedJson& one) { return fits(value, one); };
  if (schema.contains("anyOf") &&
      std::none_of(schema["anyOf"].begin(), schema["anyOf"].end(), fits_one)) {
    return false;
  }
  if (schema.contains("allOf") &&
      !std::all_of(schema["allOf"].begin(), schema["allOf"].end(), fits_one)) {
    return false;
  }
  if (schema.contains("not") && fits_one(schema["not"])) return false;
  if (schema.contains("const") && value != schema["const"]) return false;
  if (schema.contains("enum") &&
      std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end()) {
    return false;
  }
  if (schema.contains("type")) {
    const OrderedJson& type = schema["type"];
    const auto fits_one_type = [&](const OrderedJson& name) { return fits_type(value, name); };
    const bool fits_types = type.is_array() ? std::any_of(type.begin(), type.end(), fits_one_type)
                                            : fits_one_type(type);
    if (!fits_types) return false;
  }
  if (value.is_number()) {
    if (schema.contains("minimum") && value < schema["minimum"]) return false;
    if (schema.contains("maximum") && value > schema["maximum"]) return false;
    return !schema.contains("exclusiveMinimum") || value > schema["exclusiveMinimum"];
  }
  if (value.is_string()) return fits_string(value.get_ref<const std::string&>(), schema);
  if (value.is_array()) return fits_array(value, schema);
  return !value.is_object() || fits_object(value, schema);
}

bool SchemaSampler::fits_type(const OrderedJson& value, const std::string& type) const {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "number") return value.is_number();
  CHECK(type == "integer");
  if (!value.is_number_float()) return value.is_number();
  // A double beyond may stand for another integer: such texts are not what clients send.
  const auto number = value.get<double>();
  return number == std::trunc(number) && std::abs(number) <= 0x1p53;
}

bool SchemaSampler::fits_string(const std::string& text, const OrderedJson& schema) {
  if (schema.contains("minLength") && num_characters(text) < schema["minLength"]) return false;
  if (schema.contains("maxLength") && num_characters(text) > schema["maxLength"]) return false;
  if (!schema.contains("pattern")) return true;
  const std::string pattern = schema["pattern"];
  const auto found = patterns_.try_emplace(pattern, pattern).first;
  return std::regex_search(text, found->second);
}

bool SchemaSampler::fits_array(const OrderedJson& value, const OrderedJson& schema) {
  if (schema.contains("minItems") && value.size() < schema["minItems"]) return false;
  if (schema.contains("maxItems") && value.size() > schema["maxItems"]) return false;
  return !schema.contains("items") ||
         std::all_of(value.begin(), value.end(), [&](const OrderedJson& item) {
           return fits(item, schema["items"]);
         });
}

bool SchemaSampler::fits_object(const OrderedJson& value, const OrderedJson& schema) {
  if (schema.contains("maxProperties") && value.size() > schema["maxProperties"]) return false;
  if (schema.contains("required")) {
    for (const OrderedJson& name : schema["required"]) {
      if (!value.contains(name.get_ref<const std::string&>())) return false;
    }
  }
  for (auto member = value.begin(); member != value.end(); ++member) {
    if (schema.contains("propertyNames") && !fits(member.key(), schema["propertyNames"])) {
      return false;
    }
    if (schema.contains("properties") && schema["properties"].contains(member.key())) {
      if (!fits(*member, schema["properties"][member.key()])) return false;
    } else if (schema.contains("additionalProperties")) {
      const OrderedJson& additional = schema["additionalProperties"];
      if (additional.is_boolean() ? !additional.get<bool>() : !fits(*member, additional)) {
        return false;
      }
    }
  }
  return true;
}

std::string SchemaSampler::draw_string(const OrderedJson& schema) {
  const std::string pattern = schema.value("pattern", "");
  if (pattern.starts_with("^(0")) return std::to_string(below(1000));
  static const std::vector<std::string> characters = {
      "a", "Z", "0", " ", "\n", std::string(1, '\0'), "\"", "\xC3\xA9", "\xF0\x9F\x98\x80"};
  const size_t min = schema.value("minLength", size_t{0});
  const size_t max = std::min(schema.value("maxLength", min + 5), min + 5);
  // Long ones now and then, up to the limit.
  const bool is_longest = schema.contains("maxLength") && below(8) == 0;
  const size_t length = is_longest ? schema["maxLength"].get<size_t>() : min + below(max - min + 1);
  std::string text;
  for (size_t i = 0; i < length; ++i) {
    text += characters[below(pattern.empty() ? characters.size() : 3)];
  }
  return text;
}

void SchemaSampler::draw_number(const OrderedJson& schema, bool is_integer, OrderedJson* value) {
  const OrderedJson min = schema.value("minimum", schema.value("exclusiveMinimum", OrderedJson(0)));
  const OrderedJson max = schema.value("maximum", OrderedJson(1000));
  const double span = max.get<double>() - min.get<double>();
  const double share = static_cast<double>(below(1001)) / 1000;
  switch (below(3)) {
    case 0:
      if (schema.contains("minimum")) {
        *value = min;
        return;
      }
      [[fallthrough]];
    case 1:
      *value = max;
      return;
    default:
      break;
  }
  const double number = min.get<double>() + span * std::max(share, 0.001);
  if (!is_integer) {
    *value = number;
  } else if (below(2) == 0) {
    *value = std::clamp(std::trunc(number / 2), -0x1p53, 0x1p53);  // a float that is an integer
    if (*value < min) *value = min;
  } else {
    *value = static_cast<int64_t>(number / 2);
    if (*value < min) *value = min;
  }
}

void SchemaSampler::draw_object(const OrderedJson& schema, OrderedJson* value) {
  *value = OrderedJson::object();
  const OrderedJson required_names = schema.value("required", OrderedJson::array());
  if (schema.contains("properties")) {
    const OrderedJson& properties = schema["properties"];
    for (auto property = properties.begin(); property != properties.end(); ++property) {
      const bool is_required =
          std::find(required_names.begin(), required_names.end(), property.key()) !=
          required_names.end();
      if (is_required || below(8) == 0) draw(*property, &(*value)[property.key()]);
    }
    return;
  }
  const size_t size = below(4);
  for (size_t i = 0; i < size; ++i) {
    const std::string key = draw_string(schema.value("propertyNames", OrderedJson::object()));
    draw(schema.value("additionalProperties", OrderedJson{{"type", "boolean"}}), &(*value)[key]);
  }
}

void SchemaSampler::draw(const OrderedJson& unresolved, OrderedJson* value) {
  const OrderedJson& schema = resolve(unresolved);
  if (schema.contains("anyOf") && !schema.contains("properties")) {
    draw(schema["anyOf"][below(schema["anyOf"].size())], value);
    return;
  }
  if (schema.contains("const")) {
    *value = schema["const"];
    return;
  }
  if (schema.contains("enum")) {
    *value = schema["enum"][below(schema["enum"].size())];
    return;
  }
  OrderedJson type = schema.value("type", OrderedJson("boolean"));
  if (type.is_array()) type = type[below(8) == 0 ? type.size() - 1 : 0];
  if (type == "null") {
    *value = nullptr;
  } else if (type == "boolean") {
    *value = below(2) == 0;
  } else if (type == "string") {
    *value = draw_string(schema);
  } else if (type == "array") {
    *value = OrderedJson::array();
    const size_t size = schema.value("minItems", size_t{0}) + below(3);
    for (size_t i = 0; i < size; ++i) draw(schema["items"], &value->emplace_back());
  } else if (type == "object") {
    draw_object(schema, value);
  } else {
    draw_number(schema, type == "integer", value);
  }
}

void SchemaSampler::spoil(OrderedJson* value) {
  static const OrderedJson replacements = OrderedJson::parse(R"([
    null, true, false, 0, 1, -1, 2, 65, 0.5, 5.0, 1e30, -1e30, 2147483648, 9223372036854775808,
    "", "x", "text", "none", "function", "user", [], -9223372036854775809,
    [1], ["x"], [[]], [null], {}, {"x": 1}, {"type": "text"}, {"1": 1},
    {"type": "text", "text": "x"}])");
  while (value->is_structured() && !value->empty() && below(4) != 0) {
    auto member = value->begin();
    std::advance(member, static_cast<ptrdiff_t>(below(value->size())));
    if (below(8) == 0) {
      value->erase(member);
      return;
    }
    value = &*member;
  }
  if (value->is_object() && below(2) == 0) {
    static const char* const kNames[] = {"x", "role", "text", "content", "prompt", "n", "stop", ""};
    (*value)[kNames[below(std::size(kNames))]] = replacements[below(replacements.size())];
  } else {
    *value = replacements[below(replacements.size())];
  }
}

}  // namespace atom::server
