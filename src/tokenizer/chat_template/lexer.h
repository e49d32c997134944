// Cuts template source into tokens and applies Jinja's whitespace rules with the settings of
// transformers: trim_blocks and lstrip_blocks on, keep_trailing_newline off.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace atom::jinja {

enum class TokenType {
  kData,           // text between tags, as it is written out
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kName,
  kString,  // text includes the quotes and the escapes
  kInteger,
  kFloat,
  kOperator,
  kEnd,  // of the template
};

struct Token {
  TokenType type;
  std::string_view text;  // into the source
  int line;               // from 1
};

// Line ends made "\n", and one trailing line end removed.
std::string normalize_source(std::string_view source);

// Tokens of normalized source, which must outlive them, closed by one kEnd. Throws TemplateError.
std::vector<Token> tokenize(std::string_view source);

}  // namespace atom::jinja
