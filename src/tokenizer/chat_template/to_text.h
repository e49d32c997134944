// Python's str() and repr().
#pragma once

#include <string>

#include "tokenizer/chat_template/heap.h"
#include "tokenizer/chat_template/value.h"

namespace atom::jinja {

std::string float_repr(double value);  // "1.0", "1e+20", "0.30000000000000004", "nan"

// Undefined is the empty text. A str value gives its text.
std::string to_text(Heap& heap, const Value& value);

std::string to_repr(Heap& heap, const Value& value);

}  // namespace atom::jinja
