#include "tokenizer/json_fields.h"

#include <nlohmann/json.hpp>

namespace atom {

namespace {

const Json* find_field(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

constexpr size_t kMaxPatternSize = 1 << 16;

}  // namespace

Result<std::string> component_type(const Json& component, std::string_view where) {
  const Json* type = find_field(component, "type");
  if (type == nullptr || !type->is_string()) {
    return invalid_argument("{}: expected null or an object with a string \"type\"", where);
  }
  return type->get<std::string>();
}

Result<std::string> required_string(const Json& object, const char* key, std::string_view where) {
  const Json* field = find_field(object, key);
  if (field == nullptr || !field->is_string()) {
    return invalid_argument("{}: \"{}\" must be a string", where, key);
  }
  return field->get<std::string>();
}

Result<bool> optional_bool(const Json& object,
                           const char* key,
                           bool default_value,
                           std::string_view where) {
  const Json* field = find_field(object, key);
  if (field == nullptr) return default_value;
  if (!field->is_boolean()) {
    return invalid_argument("{}: \"{}\" must be true or false", where, key);
  }
  return field->get<bool>();
}

Result<std::string> optional_string(const Json& object,
                                    const char* key,
                                    std::string_view default_value,
                                    std::string_view where) {
  if (find_field(object, key) == nullptr) return std::string(default_value);
  return required_string(object, key, where);
}

Result<int64_t> required_int(
    const Json& object, const char* key, int64_t min, int64_t max, std::string_view where) {
  const Json* field = find_field(object, key);
  const bool is_integer = field != nullptr && field->is_number_integer() &&
                          (!field->is_number_unsigned() || field->get<uint64_t>() <= INT64_MAX);
  if (!is_integer || field->get<int64_t>() < min || field->get<int64_t>() > max) {
    return invalid_argument("{}: \"{}\" must be an integer in [{}, {}]", where, key, min, max);
  }
  return field->get<int64_t>();
}

Result<const Json*> required_array(const Json& object, const char* key, std::string_view where) {
  const Json* field = find_field(object, key);
  if (field == nullptr || !field->is_array()) {
    return invalid_argument("{}: \"{}\" must be an array", where, key);
  }
  return field;
}

Result<JsonPattern> required_pattern(const Json& object, std::string_view where) {
  const Json* field = find_field(object, "pattern");
  const Json* string = field == nullptr ? nullptr : find_field(*field, "String");
  const Json* regex = field == nullptr ? nullptr : find_field(*field, "Regex");
  const Json* text = string != nullptr ? string : regex;
  if (text == nullptr || !text->is_string() || (string != nullptr && regex != nullptr)) {
    return invalid_argument("{}: \"pattern\" must be {{\"String\": ...}} or {{\"Regex\": ...}}",
                            where);
  }
  JsonPattern pattern{regex != nullptr, text->get<std::string>()};
  if (pattern.text.empty() || pattern.text.size() > kMaxPatternSize) {
    return invalid_argument("{}: the pattern has {} bytes, allowed are 1 to {}",
                            where,
                            pattern.text.size(),
                            kMaxPatternSize);
  }
  return pattern;
}

}  // namespace atom
