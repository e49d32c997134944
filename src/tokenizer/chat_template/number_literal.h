// The values of number literals, which may have underscores as in Python.
#pragma once

#include "tokenizer/chat_template/token_stream.h"
#include "tokenizer/chat_template/value.h"

namespace atom::jinja {

// Decimal, or with the prefix of base 16, 8 or 2. Throws TemplateError beyond 64 bits.
Value integer_literal(const Token& token);
// Infinite beyond the range of a double.
Value float_literal(const Token& token);

}  // namespace atom::jinja
