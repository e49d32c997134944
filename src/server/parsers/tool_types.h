// Which JSON types the parameters of a request's tools may have: for families that write values as
// bare text. Const after construction.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/json.h"

namespace atom::server {

// A set of these.
using JsonTypes = uint8_t;
constexpr JsonTypes kStringType = 1;
constexpr JsonTypes kNumberType = 2;  // and integer
constexpr JsonTypes kBooleanType = 4;
constexpr JsonTypes kNullType = 8;
constexpr JsonTypes kObjectType = 16;
constexpr JsonTypes kArrayType = 32;
constexpr JsonTypes kAnyType = 63;

class ToolTypes {
 public:
  // From `tools` as OpenAI has them; read during the call only. Whatever is not of that form is
  // passed over: requests were checked before.
  explicit ToolTypes(const OrderedJson& tools);

  // A string, for a function or parameter that the tools do not have.
  JsonTypes types_of(const std::string& function, const std::string& parameter) const;

 private:
  std::unordered_map<std::string, std::unordered_map<std::string, JsonTypes>> types_;
};

// The JSON text of a value that was written as bare text: what the types allow and the text can be
// read as, otherwise the text as a string. Python's True, False and None are understood.
std::string json_of_text(std::string_view text, JsonTypes types);

}  // namespace atom::server
