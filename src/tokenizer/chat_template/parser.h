// Parses a whole template into its syntax tree.
#pragma once

#include <string_view>

#include "tokenizer/chat_template/ast.h"

namespace atom::jinja {

// Throws TemplateError, with the line, when `source` is not a template we can run.
Body parse_template(std::string_view source);

}  // namespace atom::jinja
