// JSON to text, and a text of our own to JSON. Compiled once, here: what the library makes of these
// calls is large.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace atom {

// On one line, or with `indent` spaces for each level. Bytes that are no UTF-8 are replaced.
std::string json_text(const Json& value, int indent = -1);
std::string json_text(const OrderedJson& value, int indent = -1);

// The value of a text of the program's own, which has to be right.
OrderedJson json_literal(std::string_view text);

}  // namespace atom
