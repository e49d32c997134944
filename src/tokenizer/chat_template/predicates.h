// What stands behind `is`: Jinja's tests.
#pragma once

#include <string_view>

#include "tokenizer/chat_template/arguments.h"

namespace atom::jinja {

using Predicate = bool (*)(Context& context, const Value& value, const Arguments& arguments);

Predicate find_predicate(std::string_view name);  // null: no such test

}  // namespace atom::jinja
