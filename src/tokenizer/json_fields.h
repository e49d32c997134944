// Typed reading of the small JSON objects that describe a tokenizer's components. Every error names
// `where` and the field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace atom {

// The component's "type"; an error when `component` is no object with one.
Result<std::string> component_type(const Json& component, std::string_view where);

Result<std::string> required_string(const Json& object, const char* key, std::string_view where);
// The default when the field is absent or null.
Result<bool> optional_bool(const Json& object,
                           const char* key,
                           bool default_value,
                           std::string_view where);
Result<std::string> optional_string(const Json& object,
                                    const char* key,
                                    std::string_view default_value,
                                    std::string_view where);
Result<int64_t> required_int(
    const Json& object, const char* key, int64_t min, int64_t max, std::string_view where);
// The array under `key`; an error when there is none.
Result<const Json*> required_array(const Json& object, const char* key, std::string_view where);

// A pattern written as {"String": s} or {"Regex": r}.
struct JsonPattern {
  bool is_regex = false;
  std::string text;
};
Result<JsonPattern> required_pattern(const Json& object, std::string_view where);

}  // namespace atom
