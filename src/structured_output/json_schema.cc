#include "structured_output/json_schema.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "structured_output/schema_rules.h"
#include "structured_output/schema_scalars.h"

namespace atom {
namespace {

constexpr size_t kMaxValues = 20'000;
constexpr size_t kMaxChoices = 1'000;  // values of enums, branches of anyOf and oneOf, of all
constexpr int kMaxDepth = 48;

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
      return invalid_argument("{}: expected an object", place_of(place, keyword));
    }
    out[keyword] = OrderedJson::object();
    for (const auto& [name, definition] : definitions.items()) {
      const std::string below = place_of(place_of(place, keyword), name);
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
    return invalid_argument("{}: expected a list of at least one value", place_of(place, keyword));
  }
  num_choices_ += values.size();
  if (num_choices_ > kMaxChoices) {
    return invalid_argument(
        "{}: more than {} choices in the whole schema", place_of(place, keyword), kMaxChoices);
  }
  OrderedJson fitting = OrderedJson::array();
  for (const OrderedJson& value : values) {
    if (has_type(schema, value)) fitting.push_back(value);
  }
  if (fitting.empty()) {
    return invalid_argument("{}: no value is of the type asked for", place_of(place, keyword));
  }
  return OrderedJson{{"enum", std::move(fitting)}};
}

Result<OrderedJson> Preparer::walk_branches(const OrderedJson& schema,
                                            const char* keyword,
                                            const std::string& place,
                                            int depth) {
  const std::string below = place_of(place, keyword);
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
  if (type == "string") return string_schema(schema, place);
  if (type == "integer" || type == "number") return number_schema(schema, type, place);
  if (type == "object") return object_of(schema, place, depth);
  if (type == "array") return array_of(schema, place, depth);
  return OrderedJson{{"type", type}};
}

Status Preparer::add_properties(const OrderedJson& schema,
                                const std::string& place,
                                int depth,
                                OrderedJson* out) {
  OrderedJson& properties = (*out)["properties"] = OrderedJson::object();
  if (schema.contains("properties")) {
    const std::string below = place_of(place, "properties");
    if (!schema["properties"].is_object()) return invalid_argument("{}: expected an object", below);
    for (const auto& [name, property] : schema["properties"].items()) {
      ASSIGN_OR_RETURN(properties[name], walk(property, place_of(below, name), depth + 1));
    }
  }
  if (!schema.contains("required")) return {};
  const std::string below = place_of(place, "required");
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
                     walk(additional, place_of(place, "additionalProperties"), depth + 1));
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
    const std::string below = place_of(place, "patternProperties");
    const OrderedJson& patterns = schema["patternProperties"];
    if (!patterns.is_object()) return invalid_argument("{}: expected an object", below);
    if (patterns.size() != 1 || schema.contains("propertyNames") ||
        schema.value("additionalProperties", OrderedJson(false)) != false) {
      return unimplemented("{}: only one pattern, and no other names, are supported", below);
    }
    const std::string pattern = patterns.begin().key();
    ASSIGN_OR_RETURN(const OrderedJson name, string_schema({{"pattern", pattern}}, below));
    ASSIGN_OR_RETURN(OrderedJson value,
                     walk(patterns.begin().value(), place_of(below, pattern), depth + 1));
    out["patternProperties"] = {{pattern, std::move(value)}};
    out["additionalProperties"] = false;
  } else {
    if (schema.contains("propertyNames")) {
      const std::string below = place_of(place, "propertyNames");
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
                       walk(additional, place_of(place, "additionalProperties"), depth + 1));
    }
  }
  ASSIGN_OR_RETURN(const int64_t low, count_of(schema, "minProperties", place, 0));
  ASSIGN_OR_RETURN(const int64_t high, count_of(schema, "maxProperties", place, -1));
  RETURN_IF_ERROR(check_range(place, low, high, "properties"));
  // A name that comes twice would be counted twice.
  const bool is_open = out["additionalProperties"] != false || schema.contains("patternProperties");
  if (low > 1 && is_open) {
    return unimplemented("{}: more than 1 is supported only for objects of named properties",
                         place_of(place, "minProperties"));
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
    const std::string below = place_of(place, "prefixItems");
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
                         place_of(place, "items"));
  }
  if (items == false) {
    out["items"] = false;
  } else {
    ASSIGN_OR_RETURN(out["items"], walk(items, place_of(place, "items"), depth + 1));
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
      RETURN_IF_ERROR(check_references(member, place_of(place, name)));
    }
  }
  return {};
}

}  // namespace

Result<OrderedJson> prepare_json_schema(const OrderedJson& schema, const std::string& where) {
  return Preparer(schema, where).run();
}

}  // namespace atom
