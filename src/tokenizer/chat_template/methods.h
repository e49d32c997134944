// Methods of Python's str, list, tuple and dict, and the attributes of Jinja's loop object.
#pragma once

#include <optional>
#include <string_view>

#include "tokenizer/chat_template/value.h"

namespace atom::jinja {

struct MethodEntry {
  std::string_view name;
  NativeFunction function;
};

// The method of that name that `object`'s type has, or null.
NativeFunction find_method(const Value& object, std::string_view name);

// True for methods that change a list or dict in place, which a template may not.
bool is_mutating_method(const Value& object, std::string_view name);

std::optional<Value> loop_attribute(Heap& heap, const Value& loop, std::string_view name);

NativeFunction find_string_method(std::string_view name);  // string_methods.cc

}  // namespace atom::jinja
