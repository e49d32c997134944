#include "structured_output/schema_rules.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace atom {
namespace {

struct Keyword {
  std::string_view name;
  std::string_view type;  // whose values it is about
};
constexpr Keyword kTyped[] = {
    {"minLength", "string"},
    {"maxLength", "string"},
    {"pattern", "string"},
    {"format", "string"},
    {"minimum", "number"},
    {"maximum", "number"},
    {"exclusiveMinimum", "number"},
    {"exclusiveMaximum", "number"},
    {"multipleOf", "number"},
    {"properties", "object"},
    {"required", "object"},
    {"additionalProperties", "object"},
    {"patternProperties", "object"},
    {"propertyNames", "object"},
    {"minProperties", "object"},
    {"maxProperties", "object"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
};
// In place of which other keywords count.
constexpr std::string_view kWhole[] = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};
constexpr std::string_view kTypes[] = {
    "string", "integer", "number", "object", "array", "boolean", "null"};
constexpr std::string_view kRefused[] = {"not",
                                         "if",
                                         "then",
                                         "else",
                                         "dependentRequired",
                                         "dependentSchemas",
                                         "dependencies",
                                         "uniqueItems",
                                         "contains",
                                         "minContains",
                                         "maxContains",
                                         "unevaluatedItems",
                                         "unevaluatedProperties",
                                         "additionalItems",
                                         "$dynamicRef",
                                         "$recursiveRef",
                                         "$anchor",
                                         "$dynamicAnchor",
                                         "contentSchema",
                                         "divisibleBy",
                                         "disallow",
                                         "extends"};
constexpr std::string_view kFormats[] = {"date",
                                         "time",
                                         "date-time",
                                         "duration",
                                         "email",
                                         "ipv4",
                                         "ipv6",
                                         "hostname",
                                         "uuid",
                                         "uri",
                                         "uri-reference"};
constexpr int kMaxCompared = 4;  // levels of properties within which branches are told apart

std::optional<std::string_view> type_of_keyword(std::string_view name) {
  const auto* found = std::ranges::find(kTyped, name, &Keyword::name);
  if (found == std::end(kTyped)) return std::nullopt;
  return found->type;
}

bool is_type(std::string_view type, const OrderedJson& value) {
  if (type == "string") return value.is_string();
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  return value.is_number() && value.get<double>() == std::floor(value.get<double>());
}

std::vector<std::string> named_types(const OrderedJson& schema) {
  std::vector<std::string> types;
  if (!schema.is_object() || !schema.contains("type")) return types;
  const OrderedJson& type = schema["type"];
  if (type.is_string()) types.push_back(type.get<std::string>());
  if (!type.is_array()) return types;
  for (const OrderedJson& name : type) {
    if (name.is_string()) types.push_back(name.get<std::string>());
  }
  return types;
}

// Null when it leads nowhere.
const OrderedJson* target_of(const OrderedJson& root, std::string_view reference) {
  if (reference == "#") return &root;
  if (!reference.starts_with("#/") || reference.find_first_of("~%") != std::string_view::npos) {
    return nullptr;
  }
  const OrderedJson* target = &root;
  reference.remove_prefix(2);
  for (;;) {
    const size_t slash = reference.find('/');
    const std::string name(reference.substr(0, slash));
    if (name.empty() || !target->is_object() || !target->contains(name)) return nullptr;
    target = &(*target)[name];
    if (slash == std::string_view::npos) return target;
    reference.remove_prefix(slash + 1);
  }
}

const OrderedJson& resolved(const OrderedJson& root, const OrderedJson& schema) {
  const OrderedJson* target = &schema;
  // Circles of references are refused elsewhere, maybe later than this.
  for (int i = 0; i < 64 && target->is_object() && target->contains("$ref"); ++i) {
    const OrderedJson& reference = (*target)["$ref"];
    const OrderedJson* next =
        reference.is_string() ? target_of(root, reference.get<std::string>()) : nullptr;
    if (next == nullptr) break;
    target = next;
  }
  return *target;
}

// What a value is at once, without going into it, follows from these schemas, too.
bool leads_to_itself(const OrderedJson& root,
                     const OrderedJson* schema,
                     std::set<const OrderedJson*>* above,
                     std::set<const OrderedJson*>* seen) {
  if (above->contains(schema)) return true;
  if (!schema->is_object() || !seen->insert(schema).second) return false;
  above->insert(schema);
  bool found = false;
  if (schema->contains("$ref") && (*schema)["$ref"].is_string()) {
    const OrderedJson* target = target_of(root, (*schema)["$ref"].get<std::string>());
    found = target != nullptr && leads_to_itself(root, target, above, seen);
  }
  for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
    if (!schema->contains(keyword) || !(*schema)[keyword].is_array()) continue;
    for (const OrderedJson& branch : (*schema)[keyword]) {
      found = found || leads_to_itself(root, &branch, above, seen);
    }
  }
  above->erase(schema);
  return found;
}

// The only values that a schema allows; null when they are not listed.
const OrderedJson* listed_values(const OrderedJson& schema, OrderedJson* single) {
  if (!schema.is_object()) return nullptr;
  if (schema.contains("enum") && schema["enum"].is_array()) return &schema["enum"];
  if (!schema.contains("const")) return nullptr;
  *single = OrderedJson::array({schema["const"]});
  return single;
}

bool is_required(const OrderedJson& schema, const std::string& name) {
  if (!schema.contains("required") || !schema["required"].is_array()) return false;
  return std::ranges::find(schema["required"], OrderedJson(name)) != schema["required"].end();
}

bool are_disjoint(const OrderedJson& root, const OrderedJson& a, const OrderedJson& b, int depth);

bool have_disjoint_types(const OrderedJson& a, const OrderedJson& b) {
  const std::vector<std::string> of_a = named_types(a);
  const std::vector<std::string> of_b = named_types(b);
  if (of_a.empty() || of_b.empty()) return false;
  for (const std::string& x : of_a) {
    for (const std::string& y : of_b) {
      if (x == y || (x == "integer" && y == "number") || (x == "number" && y == "integer")) {
        return false;
      }
    }
  }
  return true;
}

// A property that both must have and no value of which suits both.
bool have_disjoint_property(const OrderedJson& root,
                            const OrderedJson& a,
                            const OrderedJson& b,
                            int depth) {
  if (!a.contains("properties") || !b.contains("properties")) return false;
  if (!a["properties"].is_object() || !b["properties"].is_object()) return false;
  for (const auto& [name, property] : a["properties"].items()) {
    if (!b["properties"].contains(name)) continue;
    if (!is_required(a, name) || !is_required(b, name)) continue;
    if (are_disjoint(root, property, b["properties"][name], depth + 1)) return true;
  }
  return false;
}

bool are_disjoint(const OrderedJson& root, const OrderedJson& a, const OrderedJson& b, int depth) {
  if (depth > kMaxCompared) return false;
  const OrderedJson& first = resolved(root, a);
  const OrderedJson& second = resolved(root, b);
  if (!first.is_object() || !second.is_object()) return false;
  OrderedJson single_first;
  OrderedJson single_second;
  const OrderedJson* of_first = listed_values(first, &single_first);
  const OrderedJson* of_second = listed_values(second, &single_second);
  if (of_first != nullptr && of_second != nullptr) {
    return std::ranges::none_of(*of_first, [&](const OrderedJson& value) {
      return std::ranges::find(*of_second, value) != of_second->end();
    });
  }
  if (of_first != nullptr || of_second != nullptr) {
    const OrderedJson& values = of_first != nullptr ? *of_first : *of_second;
    const OrderedJson& other = of_first != nullptr ? second : first;
    return !named_types(other).empty() &&
           std::ranges::none_of(values,
                                [&](const OrderedJson& value) { return has_type(other, value); });
  }
  if (have_disjoint_types(first, second)) return true;
  return named_types(first) == std::vector<std::string>{"object"} &&
         named_types(second) == std::vector<std::string>{"object"} &&
         have_disjoint_property(root, first, second, depth);
}

Status check_type(const OrderedJson& schema, const std::string& place) {
  if (!schema.contains("type")) return {};
  const OrderedJson& type = schema["type"];
  const std::vector<std::string> names = named_types(schema);
  if (names.empty() || (type.is_array() && names.size() != type.size())) {
    return invalid_argument("{}.type: expected a type's name or a list of them", place);
  }
  for (const std::string& name : names) {
    if (std::ranges::find(kTypes, name) == std::end(kTypes)) {
      return invalid_argument("{}.type: there is no type '{}'", place, name.substr(0, 80));
    }
  }
  return {};
}

}  // namespace

Status check_keywords(const OrderedJson& schema, const std::string& place) {
  std::string_view whole;
  std::string_view other;
  for (const auto& [name, value] : schema.items()) {
    const bool is_off = value.is_boolean() && !value.get<bool>();
    if (std::ranges::find(kRefused, name) != std::end(kRefused)) {
      // What is not named may not come anyway.
      if (is_off && (name == "uniqueItems" || name.starts_with("unevaluated"))) continue;
      return unimplemented("{}.{}: this keyword is not supported", place, name);
    }
    if (std::ranges::find(kWhole, name) != std::end(kWhole)) {
      if (!whole.empty()) {
        return unimplemented("{}: {} and {} are not supported together", place, whole, name);
      }
      whole = *std::ranges::find(kWhole, name);
    } else if (type_of_keyword(name)) {
      other = std::ranges::find(kTyped, name, &Keyword::name)->name;
    }
  }
  if (whole == "$ref" && schema.contains("type")) other = "type";
  if (!whole.empty() && !other.empty()) {
    return unimplemented("{}: {} is not supported beside {}", place, other, whole);
  }
  return check_type(schema, place);
}

std::vector<std::string> types_of(const OrderedJson& schema) {
  std::vector<std::string> types = named_types(schema);
  if (!types.empty()) {
    // Every integer is a number.
    if (std::ranges::find(types, "number") != types.end()) std::erase(types, "integer");
    return types;
  }
  for (const auto& member : schema.items()) {
    const std::optional<std::string_view> type = type_of_keyword(member.key());
    if (type && std::ranges::find(types, *type) == types.end()) types.emplace_back(*type);
  }
  return types;
}

bool has_type(const OrderedJson& schema, const OrderedJson& value) {
  const std::vector<std::string> types = named_types(schema);
  return types.empty() ||
         std::ranges::any_of(types, [&](const std::string& type) { return is_type(type, value); });
}

Status give_type(const OrderedJson& schema, const std::string& place, OrderedJson* branch) {
  if (!schema.contains("type") || !branch->is_object()) return {};
  if (branch->contains("type")) {
    if ((*branch)["type"] == schema["type"]) return {};
    return unimplemented("{}.type: it differs from the type beside the branches", place);
  }
  if (branch->contains("$ref")) {
    return unimplemented("{}: type is not supported beside branches that are references", place);
  }
  (*branch)["type"] = schema["type"];
  return {};
}

Status check_format(const std::string& format, const std::string& place) {
  if (std::ranges::find(kFormats, format) != std::end(kFormats)) return {};
  return unimplemented("{}: '{}' is not supported; supported are {}",
                       place,
                       format.substr(0, 80),
                       fmt::join(kFormats, ", "));
}

Status check_reference(const OrderedJson& root,
                       const OrderedJson& schema,
                       const std::string& place,
                       std::set<const OrderedJson*>* checked) {
  const auto reference = schema["$ref"].get<std::string>();
  const OrderedJson* target = target_of(root, reference);
  if (target == nullptr || !(target->is_object() || target->is_boolean())) {
    return invalid_argument(
        "{}.$ref: '{}' leads to no schema; expected '#' or a path within the schema, such as "
        "'#/$defs/name', without escapes",
        place,
        reference.substr(0, 80));
  }
  std::set<const OrderedJson*> above;
  if (!leads_to_itself(root, &schema, &above, checked)) return {};
  return invalid_argument("{}.$ref: '{}' leads back to itself", place, reference.substr(0, 80));
}

Status check_exclusive(const OrderedJson& root,
                       const OrderedJson& branches,
                       const std::string& place) {
  constexpr size_t kMaxBranches = 64;
  if (branches.size() > kMaxBranches) {
    return invalid_argument("{}: expected at most {} branches", place, kMaxBranches);
  }
  for (size_t i = 0; i < branches.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (are_disjoint(root, branches[j], branches[i], 0)) continue;
      return unimplemented(
          "{}: branches {} and {} are not told apart by type, const, enum or a required property "
          "of these; use anyOf",
          place,
          j,
          i);
    }
  }
  return {};
}

}  // namespace atom
