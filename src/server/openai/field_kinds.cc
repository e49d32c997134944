#include "server/openai/field_kinds.h"
#include "server/openai/list_kind.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace atom::server {
namespace {

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

size_t num_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string quoted_names(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 < names.size() ? ", " : " or ";
    text += fmt::format("'{}'", names[i]);
  }
  return text;
}

}  // namespace

bool BoolKind::read(OrderedJson& value, const FieldPath& path, bool* out, ApiError* error) const {
  if (!value.is_boolean()) return fail_type(error, path, value, expected());
  if (out != nullptr) *out = value.get<bool>();
  return true;
}

void BoolKind::describe(const OpenApiOptions&, OrderedJson* schema) const {
  (*schema)["type"] = "boolean";
}

bool read_integer(const OrderedJson& value,
                  const FieldPath& path,
                  int64_t min,
                  int64_t max,
                  int64_t* out,
                  ApiError* error) {
  bool fits = false;
  if (value.is_number_unsigned()) {
    const auto integer = value.get<uint64_t>();
    fits = integer <= static_cast<uint64_t>(INT64_MAX);
    *out = static_cast<int64_t>(integer);
  } else if (value.is_number_integer()) {
    fits = true;
    *out = value.get<int64_t>();
  } else if (value.is_number_float() && value.get<double>() == std::trunc(value.get<double>())) {
    const auto number = value.get<double>();
    // Beyond, the double may be what another integer was rounded to.
    fits = std::abs(number) <= 0x1p53;
    *out = fits ? static_cast<int64_t>(number) : 0;
  } else {
    return fail_type(error, path, value, fmt::format("an integer in [{}, {}]", min, max));
  }
  if (fits && *out >= min && *out <= max) return true;
  return fail_value(error, path, value, fmt::format("an integer in [{}, {}]", min, max));
}

void describe_integer(int64_t min, int64_t max, OrderedJson* schema) {
  (*schema)["type"] = "integer";
  (*schema)["minimum"] = min;
  (*schema)["maximum"] = max;
}

bool TokenIdKind::read(OrderedJson& value,
                       const FieldPath& path,
                       int32_t* out,
                       ApiError* error) const {
  int64_t id = 0;
  const int64_t vocab_size = path.body().vocab_size;
  const int64_t max_id = vocab_size > 0 ? vocab_size - 1 : INT32_MAX;
  if (!read_integer(value, path, 0, max_id, &id, error)) return false;
  if (out != nullptr) *out = static_cast<int32_t>(id);
  return true;
}

void TokenIdKind::describe(const OpenApiOptions& options, OrderedJson* schema) const {
  describe_integer(0, options.vocab_size > 0 ? options.vocab_size - 1 : INT32_MAX, schema);
}

bool NumberKind::read(OrderedJson& value,
                      const FieldPath& path,
                      float* out,
                      ApiError* error) const {
  if (!value.is_number()) return fail_type(error, path, value, expected());
  const auto number = value.get<double>();
  const bool is_in_range = (excludes_min ? number > min : number >= min) && number <= max;
  if (!is_in_range) return fail_value(error, path, value, expected());
  if (out == nullptr) return true;
  *out = static_cast<float>(number);
  if (excludes_min) *out = std::max(*out, std::numeric_limits<float>::min());
  return true;
}

void NumberKind::describe(const OpenApiOptions&, OrderedJson* schema) const {
  (*schema)["type"] = "number";
  (*schema)[excludes_min ? "exclusiveMinimum" : "minimum"] = min;
  (*schema)["maximum"] = max;
}

std::string StringKind::expected() const {
  std::string text = "a string";
  if (max_length > 0) {
    text += fmt::format(" of {} to {} characters", min_length, max_length);
  } else if (min_length > 0) {
    text += fmt::format(" of at least {} character", min_length);
  }
  if (!punctuation.empty()) text += fmt::format(", each a letter, a digit or of {}", punctuation);
  return text;
}

bool StringKind::read(OrderedJson& value,
                      const FieldPath& path,
                      std::string* out,
                      ApiError* error) const {
  if (!value.is_string()) return fail_type(error, path, value, expected());
  auto& text = value.get_ref<std::string&>();
  const auto is_allowed = [&](char c) {
    return is_alphanumeric(c) || punctuation.find(c) != std::string_view::npos;
  };
  // Bytes bound characters: most strings need no count.
  const bool is_short_enough =
      max_length == 0 || text.size() <= max_length || num_characters(text) <= max_length;
  const bool is_long_enough = text.size() >= 4 * min_length || num_characters(text) >= min_length;
  if (!is_short_enough || !is_long_enough ||
      (!punctuation.empty() && !std::all_of(text.begin(), text.end(), is_allowed))) {
    return fail_value(error, path, value, expected());
  }
  if (out != nullptr) *out = std::move(text);
  return true;
}

void StringKind::describe(const OpenApiOptions&, OrderedJson* schema) const {
  (*schema)["type"] = "string";
  if (min_length > 0) (*schema)["minLength"] = min_length;
  if (max_length > 0) (*schema)["maxLength"] = max_length;
  if (punctuation.empty()) return;
  // '-' stands last in `punctuation`, so that the class has no other ranges.
  (*schema)["pattern"] =
      fmt::format("^[A-Za-z0-9{}]{{{},{}}}$", punctuation, min_length, max_length);
}

std::string EnumKind::expected() const {
  return quoted_names(names);
}

bool EnumKind::read(OrderedJson& value,
                    const FieldPath& path,
                    std::string* out,
                    ApiError* error) const {
  if (!value.is_string()) return fail_type(error, path, value, expected());
  auto& text = value.get_ref<std::string&>();
  if (std::find(names.begin(), names.end(), text) != names.end()) {
    if (out != nullptr) *out = std::move(text);
    return true;
  }
  for (const auto& [name, reason] : refused) {
    if (text != name) continue;
    return fail(error,
                path,
                kUnsupportedField,
                fmt::format("{} is '{}'; expected {}: {}", path.text(), name, expected(), reason));
  }
  return fail_value(error, path, value, expected());
}

void EnumKind::describe(const OpenApiOptions&, OrderedJson* schema) const {
  (*schema)["type"] = "string";
  (*schema)["enum"] = names;
}

bool ObjectKind::read(OrderedJson& value, const FieldPath& path, InPlace*, ApiError* error) const {
  return value.is_object() || fail_type(error, path, value, expected());
}

void ObjectKind::describe(const OpenApiOptions&, OrderedJson* schema) const {
  (*schema)["type"] = "object";
}

bool is_list(const OrderedJson& value, size_t min_items, size_t max_items) {
  return value.is_array() && value.size() >= min_items &&
         (max_items == 0 || value.size() <= max_items);
}

bool fail_list(ApiError* error,
               const FieldPath& path,
               const OrderedJson& value,
               std::string_view expected) {
  return value.is_array() ? fail_value(error, path, value, expected)
                          : fail_type(error, path, value, expected);
}

size_t list_size(const OrderedJson& value) {
  return value.size();
}

OrderedJson& list_item(OrderedJson& value, size_t index) {
  return value[index];
}

void clear_list(OrderedJson* value) {
  value->get_ref<OrderedJson::array_t&>().clear();
}

void describe_list(size_t min_items,
                   size_t max_items,
                   const std::function<void(OrderedJson*)>& describe_item,
                   OrderedJson* schema) {
  (*schema)["type"] = "array";
  if (min_items > 0) (*schema)["minItems"] = min_items;
  if (max_items > 0) (*schema)["maxItems"] = max_items;
  OrderedJson item = OrderedJson::object();
  describe_item(&item);
  (*schema)["items"] = std::move(item);
}

}  // namespace atom::server
