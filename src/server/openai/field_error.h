// Where in a body a value stands, and how an error about it is told.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/openai/api_error.h"

namespace atom::server {

// A chain of stack frames, made into text only for an error. `name` and `parent` are borrowed.
struct FieldPath {
  const FieldPath* parent = nullptr;
  std::string_view name;  // no data: the item `index` of the parent's list
  size_t index = 0;

  FieldPath field(std::string_view field_name) const { return {this, field_name, 0}; }
  FieldPath item(size_t item_index) const { return {this, {}, item_index}; }
  std::string text() const;  // "messages[2].content"; empty for the body
};

// The codes of errors about fields.
inline constexpr char kInvalidJson[] = "invalid_json";
inline constexpr char kUnknownField[] = "unknown_field";
inline constexpr char kMissingField[] = "missing_field";
inline constexpr char kInvalidType[] = "invalid_type";
inline constexpr char kInvalidValue[] = "invalid_value";
inline constexpr char kUnsupportedField[] = "unsupported_field";
inline constexpr char kConflictingFields[] = "conflicting_fields";

// "5", "'abc'", "a list of 3", "an object of 2", ...: a value as a message shows it, short and
// printable.
std::string show(const OrderedJson& value);

// All fill `error` and return false, for the callers to return.
bool fail(ApiError* error, const FieldPath& path, const char* code, std::string message);
// "<path> is <value>; expected <expected>"
bool fail_type(ApiError* error,
               const FieldPath& path,
               const OrderedJson& value,
               std::string_view expected);
bool fail_value(ApiError* error,
                const FieldPath& path,
                const OrderedJson& value,
                std::string_view expected);

}  // namespace atom::server
