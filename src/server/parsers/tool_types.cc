#include "server/parsers/tool_types.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "server/parsers/json_scanner.h"

namespace atom::server {
namespace {

// Schemas and members looked at for one request; beyond, anything is allowed. Far more than real
// tools need, and what keeps references to references cheap.
constexpr size_t kMaxWork = 1'000'000;
constexpr int kMaxSchemaDepth = 32;

struct TypeName {
  std::string_view name;
  JsonTypes types;
};
// JSON Schema's names, and those of languages that tools in the wild use instead.
constexpr TypeName kTypeNames[] = {
    {"string", kStringType},
    {"str", kStringType},
    {"text", kStringType},
    {"integer", kNumberType},
    {"int", kNumberType},
    {"long", kNumberType},
    {"number", kNumberType},
    {"float", kNumberType},
    {"double", kNumberType},
    {"boolean", kBooleanType},
    {"bool", kBooleanType},
    {"null", kNullType},
    {"object", kObjectType},
    {"dict", kObjectType},
    {"map", kObjectType},
    {"array", kArrayType},
    {"list", kArrayType},
    {"tuple", kArrayType},
};

JsonTypes types_named(const OrderedJson& name) {
  if (!name.is_string()) return 0;
  const auto& text = name.get_ref<const std::string&>();
  for (const TypeName& type : kTypeNames) {
    if (type.name == text) return type.types;
  }
  return kStringType;
}

JsonTypes type_of_value(const OrderedJson& value) {
  if (value.is_string()) return kStringType;
  if (value.is_number()) return kNumberType;
  if (value.is_boolean()) return kBooleanType;
  if (value.is_null()) return kNullType;
  return value.is_object() ? kObjectType : kArrayType;
}

const OrderedJson* member(const OrderedJson& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

// Which types the schemas of one function's parameters allow.
class SchemaReader {
 public:
  SchemaReader(const OrderedJson& root, size_t* work_left) : root_(root), work_left_(*work_left) {}

  // Anything, for a schema that says nothing about the type.
  JsonTypes types_of(const OrderedJson& schema) {
    const JsonTypes types = visit(schema, 0);
    return types == 0 ? kAnyType : types;
  }

 private:
  // False when there has been enough.
  bool spend(size_t work) {
    work_left_ -= std::min(work_left_, work);
    return work_left_ > 0;
  }

  JsonTypes visit(const OrderedJson& schema, int depth) {
    if (depth > kMaxSchemaDepth || !spend(schema.size() + 1)) return kAnyType;
    if (const OrderedJson* type = member(schema, "type")) {
      return type->is_array() ? join(*type, types_named) : types_named(*type);
    }
    if (const OrderedJson* values = member(schema, "enum"); values && values->is_array()) {
      return join(*values, type_of_value);
    }
    if (const OrderedJson* value = member(schema, "const")) return type_of_value(*value);
    JsonTypes types = 0;
    if (const OrderedJson* reference = member(schema, "$ref")) {
      types |= visit_reference(*reference, depth + 1);
    }
    for (const char* key : {"anyOf", "oneOf", "allOf"}) {
      const OrderedJson* choices = member(schema, key);
      if (choices == nullptr || !choices->is_array()) continue;
      types |= join(*choices, [&](const OrderedJson& each) { return visit(each, depth + 1); });
    }
    if (types == 0 && member(schema, "properties") != nullptr) return kObjectType;
    if (types == 0 && member(schema, "items") != nullptr) return kArrayType;
    return types;
  }

  template <typename Function>
  JsonTypes join(const OrderedJson& list, const Function& types_of_entry) {
    JsonTypes types = 0;
    for (const OrderedJson& entry : list) {
      if (!spend(1)) return kAnyType;
      types |= types_of_entry(entry);
    }
    return types;
  }

  // "#/$defs/Name" within the function's parameters, as programs that make schemas write it.
  JsonTypes visit_reference(const OrderedJson& reference, int depth) {
    if (!reference.is_string()) return 0;
    std::string_view path = reference.get_ref<const std::string&>();
    if (!path.starts_with("#/")) return 0;
    path.remove_prefix(2);
    const OrderedJson* target = &root_;
    while (target != nullptr && !path.empty()) {
      if (!spend(target->size())) return kAnyType;
      const size_t end = std::min(path.find('/'), path.size());
      target = member(*target, std::string(path.substr(0, end)).c_str());
      path.remove_prefix(std::min(end + 1, path.size()));
    }
    return target == nullptr ? 0 : visit(*target, depth);
  }

  const OrderedJson& root_;
  size_t& work_left_;
};

bool equals_ignoring_case(std::string_view text, std::string_view lower) {
  const auto same = [](char a, char b) { return a == b || (a >= 'A' && a <= 'Z' && a + 32 == b); };
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(), same);
}

JsonTypes type_of_json_text(std::string_view text) {
  switch (text.front()) {
    case '{':
      return kObjectType;
    case '[':
      return kArrayType;
    case '"':
      return kStringType;
    case 't':
    case 'f':
      return kBooleanType;
    case 'n':
      return kNullType;
    default:
      return kNumberType;
  }
}

bool is_json(std::string_view text) {
  JsonScanner scanner;
  if (scanner.scan(text) != text.size()) return false;
  scanner.end();
  return scanner.status() == JsonStatus::kDone;
}

// Empty: none of them.
std::string_view word_as_json(std::string_view text, JsonTypes types) {
  if ((types & kBooleanType) != 0) {
    if (equals_ignoring_case(text, "true")) return "true";
    if (equals_ignoring_case(text, "false")) return "false";
  }
  // Where no string can be meant, null is the only reading.
  if ((types & kNullType) != 0 || (types & kStringType) == 0) {
    if (equals_ignoring_case(text, "null") || equals_ignoring_case(text, "none")) return "null";
  }
  return {};
}

}  // namespace

ToolTypes::ToolTypes(const OrderedJson& tools) {
  if (!tools.is_array()) return;
  size_t work_left = kMaxWork;
  for (const OrderedJson& tool : tools) {
    const OrderedJson* function = member(tool, "function");
    if (function == nullptr) function = &tool;
    const OrderedJson* name = member(*function, "name");
    const OrderedJson* parameters = member(*function, "parameters");
    if (name == nullptr || !name->is_string() || parameters == nullptr) continue;
    const OrderedJson* properties = member(*parameters, "properties");
    if (properties == nullptr || !properties->is_object()) continue;
    SchemaReader schemas(*parameters, &work_left);
    auto& types = types_[name->get<std::string>()];
    for (const auto& [key, schema] : properties->items()) {
      const JsonTypes allowed = schemas.types_of(schema);
      if (allowed != kStringType) types[key] = allowed;
    }
  }
}

JsonTypes ToolTypes::types_of(const std::string& function, const std::string& parameter) const {
  const auto found = types_.find(function);
  if (found == types_.end()) return kStringType;
  const auto type = found->second.find(parameter);
  return type == found->second.end() ? kStringType : type->second;
}

std::string json_of_text(std::string_view text, JsonTypes types) {
  if (types != kStringType) {
    const std::string_view trimmed = trim_json_space(text);
    if (const std::string_view word = word_as_json(trimmed, types); !word.empty()) {
      return std::string(word);
    }
    // A quoted string where a string is allowed is text like any other.
    const JsonTypes readable = (types & kStringType) != 0 ? types & ~kStringType : kAnyType;
    if (!trimmed.empty() && (type_of_json_text(trimmed) & readable) != 0 && is_json(trimmed)) {
      return std::string(trimmed);
    }
  }
  std::string json = "\"";
  append_json_escaped(text, &json);
  json.push_back('"');
  return json;
}

}  // namespace atom::server
