// The functions every template can call: range, namespace, dict, raise_exception, strftime_now.
#pragma once

#include <string_view>

#include "tokenizer/chat_template/arguments.h"

namespace atom::jinja {

NativeFunction find_global(std::string_view name);  // null: no such function

}  // namespace atom::jinja
