#include "structured_output/json_schema.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "structured_output/grammar_check.h"
#include "structured_output/schema_rules.h"

namespace atom {
namespace {

constexpr size_t kMaxValues = 20'000;
constexpr size_t kMaxChoices = 1'000;  // values of enums, branches of anyOf and oneOf, of all
constexpr int kMaxDepth = 48;
constexpr int64_t kMaxLength = 4'096;  // of strings and arrays, where the schema says one
constexpr double kMaxInteger = 9007199254740992.0;  // 2^53
constexpr int64_t kMaxMultiple = 256;
constexpr int64_t kMaxMultiples = 1'000;

class Preparer {
 public:
  Preparer(const OrderedJson& root, const std::string& where) : root_(root), where_(where) {}

  Result<OrderedJson> run() {
    size_t num_values = 0;
    RETURN_IF_ERROR(count_values(root_, &num_values));
    RETURN_IF_ERROR(check_references(root_, where_));
    return walk(root_, where_, 0);
  }

 private:
  Result<OrderedJson> walk(const OrderedJson& schema, const std::string& place, int depth);
  Result<OrderedJson> walk_object(const OrderedJson& schema, const std::string& place, int depth);
  Result<OrderedJson> walk_branches(const OrderedJson& schema,
                                    const char* keyword,
                                    const std::string& place,
                                    int depth);
  Result<OrderedJson> walk_values(const OrderedJson& schema,
                                  const char* keyword,
                                  const std::string& place);
  Result<OrderedJson> walk_types(const OrderedJson& schema, const std::string& place, int depth);
  Result<OrderedJson> walk_type(const OrderedJson& schema,
                                const std::string& type,
                                const std::string& place,
                                int depth);
  Result<OrderedJson> string_of(const OrderedJson& schema, const std::string& place);
  Result<OrderedJson> number_of(const OrderedJson& schema,
                                const std::string& type,
                                const std::string& place);
  Result<OrderedJson> object_of(const OrderedJson& schema, const std::string& place, int depth);
  Status add_properties(const OrderedJson& schema,
                        const std::string& place,
                        int depth,
                        OrderedJson* out);
  Result<OrderedJson> array_of(const OrderedJson& schema, const std::string& place, int depth);
  Status count_values(const OrderedJson& value, size_t* count) const;
  Status check_references(const OrderedJson& value, const std::string& place);

  const OrderedJson& root_;
  const std::string& where_;
  std::set<const OrderedJson*> checked_;  // by check_references()
  size_t num_choices_ = 0;
};

std::string at(const std::string& place, std::string_view name) {
  return fmt::format("{}.{}", place, name.substr(0, 80));
}

Result<int64_t> count_of(const OrderedJson& schema,
                         const char* keyword,
                         const std::string& place,
                         int64_t otherwise) {
  if (!schema.contains(keyword)) return otherwise;
  const OrderedJson& value = schema[keyword];
  const bool is_count = value.is_number() && value.get<double>() >= 0 &&
                        value.get<double>() == std::floor(value.get<double>());
  if (!is_count) return invalid_argument("{}: expected a whole number >= 0", at(place, keyword));
  if (value.get<double>() > static_cast<double>(kMaxLength)) {
    return invalid_argument("{}: expected at most {}", at(place, keyword), kMaxLength);
  }
  return static_cast<int64_t>(value.get<double>());
}

Status check_range(const std::string& place, int64_t low, int64_t high, std::string_view what) {
  if (high < 0 || low <= high) return {};
  return invalid_argument("{}: no number of {} is between {} and {}", place, what, low, high);
}

Result<std::string> text_of(const OrderedJson& value, const std::string& place) {
  if (!value.is_string()) return invalid_argument("{}: expected a string", place);
  return value.get<std::string>();
}

Result<OrderedJson> Preparer::walk(const OrderedJson& schema, const std::string& place, int depth) {
  if (depth > kMaxDepth) {
    return invalid_argument("{}: nested more than {} levels deep", where_, kMaxDepth);
  }
  if (schema.is_boolean()) {
    if (schema.get<bool>()) return OrderedJson::object();
    return invalid_argument("{}: false allows nothing at all", place);
  }
  if (!schema.is_object()) return invalid_argument("{}: expected an object or a boolean", place);
  RETURN_IF_ERROR(check_keywords(schema, place));
  ASSIGN_OR_RETURN(OrderedJson out, walk_object(schema, place, depth));
  for (const char* keyword : {"$defs", "definitions"}) {
    if (!schema.contains(keyword)) continue;
    const OrderedJson& definitions = schema[keyword];
    if (!definitions.is_object()) {
      return invalid_argument("{}: expected an object", at(place, keyword));
    }
    out[keyword] = OrderedJson::object();
    for (const auto& [name, definition] : definitions.items()) {
      const std::string below = at(at(place, keyword), name);
      ASSIGN_OR_RETURN(out[keyword][name], walk(definition, below, depth + 1));
    }
  }
  return out;
}

Result<OrderedJson> Preparer::walk_object(const OrderedJson& schema,
                                          const std::string& place,
                                          int depth) {
  if (schema.contains("$ref")) return OrderedJson{{"$ref", schema["$ref"]}};
  for (const char* keyword : {"const", "enum"}) {
    if (schema.contains(keyword)) return walk_values(schema, keyword, place);
  }
  for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
    if (schema.contains(keyword)) return walk_branches(schema, keyword, place, depth);
  }
  return walk_types(schema, place, depth);
}

Result<OrderedJson> Preparer::walk_values(const OrderedJson& schema,
                                          const char* keyword,
                                          const std::string& place) {
  OrderedJson values = schema[keyword];
  if (std::string_view(keyword) == "const") {
    values = OrderedJson::array({schema[keyword]});
  } else if (!values.is_array() || values.empty()) {
    return invalid_argument("{}: expected a list of at least one value", at(place, keyword));
  }
  num_choices_ += values.size();
  if (num_choices_ > kMaxChoices) {
    return invalid_argument(
        "{}: more than {} choices in the whole schema", at(place, keyword), kMaxChoices);
  }
  OrderedJson fitting = OrderedJson::array();
  for (const OrderedJson& value : values) {
    if (has_type(schema, value)) fitting.push_back(value);
  }
  if (fitting.empty()) {
    return invalid_argument("{}: no value is of the type asked for", at(place, keyword));
  }
  return OrderedJson{{"enum", std::move(fitting)}};
}

Result<OrderedJson> Preparer::walk_branches(const OrderedJson& schema,
                                            const char* keyword,
                                            const std::string& place,
                                            int depth) {
  const std::string below = at(place, keyword);
  const OrderedJson& branches = schema[keyword];
  if (!branches.is_array() || branches.empty()) {
    return invalid_argument("{}: expected a list of at least one schema", below);
  }
  num_choices_ += branches.size();
  if (num_choices_ > kMaxChoices) {
    return invalid_argument("{}: more than {} choices in the whole schema", below, kMaxChoices);
  }
  if (std::string_view(keyword) == "allOf" && branches.size() > 1) {
    return unimplemented("{}: several schemas at once are not supported; write them as one", below);
  }
  if (std::string_view(keyword) == "oneOf")
    RETURN_IF_ERROR(check_exclusive(root_, branches, below));
  OrderedJson out = OrderedJson::array();
  for (size_t i = 0; i < branches.size(); ++i) {
    const std::string branch_place = fmt::format("{}[{}]", below, i);
    OrderedJson branch = branches[i];
    RETURN_IF_ERROR(give_type(schema, branch_place, &branch));
    ASSIGN_OR_RETURN(OrderedJson walked, walk(branch, branch_place, depth + 1));
    out.push_back(std::move(walked));
  }
  if (out.size() == 1) return OrderedJson(std::move(out[0]));
  return OrderedJson{{"anyOf", std::move(out)}};
}

Result<OrderedJson> Preparer::walk_types(const OrderedJson& schema,
                                         const std::string& place,
                                         int depth) {
  const std::vector<std::string> types = types_of(schema);
  if (types.empty()) return OrderedJson::object();
  if (types.size() == 1) return walk_type(schema, types[0], place, depth);
  OrderedJson out = OrderedJson::array();
  for (const std::string& type : types) {
    ASSIGN_OR_RETURN(OrderedJson walked, walk_type(schema, type, place, depth));
    out.push_back(std::move(walked));
  }
  return OrderedJson{{"anyOf", std::move(out)}};
}

Result<OrderedJson> Preparer::walk_type(const OrderedJson& schema,
                                        const std::string& type,
                                        const std::string& place,
                                        int depth) {
  if (type == "string") return string_of(schema, place);
  if (type == "integer" || type == "number") return number_of(schema, type, place);
  if (type == "object") return object_of(schema, place, depth);
  if (type == "array") return array_of(schema, place, depth);
  return OrderedJson{{"type", type}};
}

Result<OrderedJson> Preparer::string_of(const OrderedJson& schema, const std::string& place) {
  OrderedJson out = {{"type", "string"}};
  const bool has_length = schema.contains("minLength") || schema.contains("maxLength");
  const int num_rules = static_cast<int>(has_length) +
                        static_cast<int>(schema.contains("pattern")) +
                        static_cast<int>(schema.contains("format"));
  if (num_rules > 1) {
    return unimplemented("{}: of pattern, format and lengths only one is supported at once", place);
  }
  if (schema.contains("pattern")) {
    const std::string below = at(place, "pattern");
    ASSIGN_OR_RETURN(const std::string pattern, text_of(schema["pattern"], below));
    if (std::ranges::any_of(pattern, [](char c) { return c < ' ' || c > '~'; })) {
      return unimplemented("{}: only patterns of printable ASCII are supported", below);
    }
    RETURN_IF_ERROR(check_json_pattern(pattern, below));
    out["pattern"] = pattern;
  } else if (schema.contains("format")) {
    const std::string below = at(place, "format");
    ASSIGN_OR_RETURN(const std::string format, text_of(schema["format"], below));
    RETURN_IF_ERROR(check_format(format, below));
    out["format"] = format;
  } else if (has_length) {
    ASSIGN_OR_RETURN(const int64_t low, count_of(schema, "minLength", place, 0));
    ASSIGN_OR_RETURN(const int64_t high, count_of(schema, "maxLength", place, -1));
    RETURN_IF_ERROR(check_range(place, low, high, "characters"));
    if (low > 0) out["minLength"] = low;
    if (high >= 0) out["maxLength"] = high;
  }
  return out;
}

// The bounds as the engine takes them; whole numbers for integers.
Result<OrderedJson> bounds_of(const OrderedJson& schema,
                              const std::string& type,
                              const std::string& place) {
  OrderedJson out = {{"type", type}};
  for (const char* keyword : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
    if (!schema.contains(keyword)) continue;
    const OrderedJson& value = schema[keyword];
    if (!value.is_number()) return invalid_argument("{}: expected a number", at(place, keyword));
    const double bound = value.get<double>();
    if (!std::isfinite(bound) || std::abs(bound) > kMaxInteger) {
      return invalid_argument("{}: expected a number within 2^53 of 0", at(place, keyword));
    }
    if (type == "number") {
      out[keyword] = value;
      continue;
    }
    // x > 1.5 is x >= 2, and x > 1 stays.
    const bool is_lower = std::string_view(keyword).ends_with("inimum");
    const bool is_whole = bound == std::floor(bound);
    const char* name = is_whole ? keyword : is_lower ? "minimum" : "maximum";
    const auto whole = static_cast<int64_t>(is_lower ? std::ceil(bound) : std::floor(bound));
    if (out.contains(name)) {
      const auto other = out[name].get<int64_t>();
      out[name] = is_lower ? std::max(other, whole) : std::min(other, whole);
    } else {
      out[name] = whole;
    }
  }
  return out;
}

Result<OrderedJson> Preparer::number_of(const OrderedJson& schema,
                                        const std::string& type,
                                        const std::string& place) {
  ASSIGN_OR_RETURN(OrderedJson out, bounds_of(schema, type, place));
  if (!schema.contains("multipleOf")) return out;
  const std::string below = at(place, "multipleOf");
  const OrderedJson& value = schema["multipleOf"];
  if (!value.is_number() || value.get<double>() <= 0) {
    return invalid_argument("{}: expected a number > 0", below);
  }
  const double multiple = value.get<double>();
  if (multiple != std::floor(multiple) || multiple > static_cast<double>(kMaxMultiple)) {
    return unimplemented("{}: only whole numbers up to {} are supported", below, kMaxMultiple);
  }
  const auto step = static_cast<int64_t>(multiple);
  out["type"] = "integer";
  if (type == "number") {
    // Whole numbers are what multiples of whole numbers are.
    ASSIGN_OR_RETURN(out, bounds_of(schema, "integer", place));
  }
  if (out.size() == 1) {
    if (step > 1) out["multipleOf"] = step;
    return out;
  }
  int64_t low = std::max(
      out.value("minimum", INT64_MIN),
      out.contains("exclusiveMinimum") ? out["exclusiveMinimum"].get<int64_t>() + 1 : INT64_MIN);
  int64_t high = std::min(
      out.value("maximum", INT64_MAX),
      out.contains("exclusiveMaximum") ? out["exclusiveMaximum"].get<int64_t>() - 1 : INT64_MAX);
  if (low == INT64_MIN || high == INT64_MAX || (high - low) / step > kMaxMultiples) {
    return unimplemented(
        "{}: with bounds, only up to {} multiples between two of them are supported",
        below,
        kMaxMultiples);
  }
  OrderedJson multiples = OrderedJson::array();
  for (int64_t x = low + ((-low % step) + step) % step; x <= high; x += step)
    multiples.push_back(x);
  if (multiples.empty()) return invalid_argument("{}: no multiple is within the bounds", below);
  return OrderedJson{{"enum", std::move(multiples)}};
}

Status Preparer::add_properties(const OrderedJson& schema,
                                const std::string& place,
                                int depth,
                                OrderedJson* out) {
  OrderedJson& properties = (*out)["properties"] = OrderedJson::object();
  if (schema.contains("properties")) {
    const std::string below = at(place, "properties");
    if (!schema["properties"].is_object()) return invalid_argument("{}: expected an object", below);
    for (const auto& [name, property] : schema["properties"].items()) {
      ASSIGN_OR_RETURN(properties[name], walk(property, at(below, name), depth + 1));
    }
  }
  if (!schema.contains("required")) return {};
  const std::string below = at(place, "required");
  if (!schema["required"].is_array()) return invalid_argument("{}: expected a list", below);
  for (const OrderedJson& name : schema["required"]) {
    if (!name.is_string()) return invalid_argument("{}: expected strings", below);
    const auto key = name.get<std::string>();
    if (properties.contains(key)) continue;
    const OrderedJson additional = schema.value("additionalProperties", OrderedJson(true));
    if (additional == false || schema.contains("patternProperties")) {
      return invalid_argument("{}: '{}' is not among the properties", below, key.substr(0, 80));
    }
    ASSIGN_OR_RETURN(properties[key],
                     walk(additional, at(place, "additionalProperties"), depth + 1));
  }
  (*out)["required"] = schema["required"];
  return {};
}

Result<OrderedJson> Preparer::object_of(const OrderedJson& schema,
                                        const std::string& place,
                                        int depth) {
  OrderedJson out = {{"type", "object"}};
  RETURN_IF_ERROR(add_properties(schema, place, depth, &out));
  const bool has_properties = !out["properties"].empty();
  const bool has_names = schema.contains("patternProperties") || schema.contains("propertyNames");
  if (!has_properties) out.erase("properties");
  if (has_names && has_properties) {
    return unimplemented(
        "{}: patternProperties and propertyNames are not supported beside properties", place);
  }
  if (schema.contains("patternProperties")) {
    const std::string below = at(place, "patternProperties");
    const OrderedJson& patterns = schema["patternProperties"];
    if (!patterns.is_object()) return invalid_argument("{}: expected an object", below);
    if (patterns.size() != 1 || schema.contains("propertyNames") ||
        schema.value("additionalProperties", OrderedJson(false)) != false) {
      return unimplemented("{}: only one pattern, and no other names, are supported", below);
    }
    const std::string pattern = patterns.begin().key();
    ASSIGN_OR_RETURN(const OrderedJson name, string_of({{"pattern", pattern}}, below));
    ASSIGN_OR_RETURN(OrderedJson value,
                     walk(patterns.begin().value(), at(below, pattern), depth + 1));
    out["patternProperties"] = {{pattern, std::move(value)}};
    out["additionalProperties"] = false;
  } else {
    if (schema.contains("propertyNames")) {
      const std::string below = at(place, "propertyNames");
      OrderedJson names = schema["propertyNames"];
      if (names.is_object() && !names.contains("type")) names["type"] = "string";
      ASSIGN_OR_RETURN(out["propertyNames"], walk(names, below, depth + 1));
    }
    const OrderedJson additional =
        schema.value("additionalProperties", OrderedJson(!has_properties));
    if (additional.is_boolean()) {
      out["additionalProperties"] = additional;
    } else {
      ASSIGN_OR_RETURN(out["additionalProperties"],
                       walk(additional, at(place, "additionalProperties"), depth + 1));
    }
  }
  ASSIGN_OR_RETURN(const int64_t low, count_of(schema, "minProperties", place, 0));
  ASSIGN_OR_RETURN(const int64_t high, count_of(schema, "maxProperties", place, -1));
  RETURN_IF_ERROR(check_range(place, low, high, "properties"));
  // A name that comes twice would be counted twice.
  const bool is_open = out["additionalProperties"] != false || schema.contains("patternProperties");
  if (low > 1 && is_open) {
    return unimplemented("{}: more than 1 is supported only for objects of named properties",
                         at(place, "minProperties"));
  }
  if (low > 0) out["minProperties"] = low;
  if (high >= 0) out["maxProperties"] = high;
  return out;
}

Result<OrderedJson> Preparer::array_of(const OrderedJson& schema,
                                       const std::string& place,
                                       int depth) {
  OrderedJson out = {{"type", "array"}};
  const bool has_prefix = schema.contains("prefixItems");
  if (has_prefix) {
    const std::string below = at(place, "prefixItems");
    const OrderedJson& prefix = schema["prefixItems"];
    if (!prefix.is_array() || prefix.empty()) {
      return invalid_argument("{}: expected a list of at least one schema", below);
    }
    out["prefixItems"] = OrderedJson::array();
    for (size_t i = 0; i < prefix.size(); ++i) {
      ASSIGN_OR_RETURN(OrderedJson item,
                       walk(prefix[i], fmt::format("{}[{}]", below, i), depth + 1));
      out["prefixItems"].push_back(std::move(item));
    }
  }
  const OrderedJson items = schema.value("items", OrderedJson(!has_prefix));
  if (items.is_array()) {
    return unimplemented("{}: a list of schemas is not supported; use prefixItems",
                         at(place, "items"));
  }
  if (items == false) {
    out["items"] = false;
  } else {
    ASSIGN_OR_RETURN(out["items"], walk(items, at(place, "items"), depth + 1));
  }
  ASSIGN_OR_RETURN(const int64_t low, count_of(schema, "minItems", place, 0));
  ASSIGN_OR_RETURN(const int64_t high, count_of(schema, "maxItems", place, -1));
  RETURN_IF_ERROR(check_range(place, low, high, "items"));
  if (low > 0) out["minItems"] = low;
  if (high >= 0) out["maxItems"] = high;
  return out;
}

Status Preparer::count_values(const OrderedJson& value, size_t* count) const {
  if (++*count > kMaxValues) {
    return invalid_argument("{}: the schema has more than {} values", where_, kMaxValues);
  }
  if (!value.is_structured()) return {};
  for (const OrderedJson& item : value) RETURN_IF_ERROR(count_values(item, count));
  return {};
}

// Every reference, wherever it stands, leads to a schema, and not in place to itself.
Status Preparer::check_references(const OrderedJson& value, const std::string& place) {
  if (value.is_array()) {
    for (const OrderedJson& item : value) RETURN_IF_ERROR(check_references(item, place));
  }
  if (!value.is_object()) return {};
  if (value.contains("$ref") && value["$ref"].is_string()) {
    RETURN_IF_ERROR(check_reference(root_, value, place, &checked_));
  }
  for (const auto& [name, member] : value.items()) {
    if (name != "enum" && name != "const" && name != "default" && name != "examples") {
      RETURN_IF_ERROR(check_references(member, at(place, name)));
    }
  }
  return {};
}

}  // namespace

Result<OrderedJson> prepare_json_schema(const OrderedJson& schema, const std::string& where) {
  return Preparer(schema, where).run();
}

}  // namespace atom
