#include "tokenizer/chat_template/token_stream.h"

#include "tokenizer/chat_template/template_error.h"

namespace atom::jinja {

std::string TokenStream::describe_current() const {
  switch (current().type) {
    case TokenType::kEnd:
      return "the end of the template";
    case TokenType::kData:
      return "text outside of a tag";
    case TokenType::kVariableEnd:
      return "the end of the tag, '}}'";
    case TokenType::kBlockEnd:
      return "the end of the tag, '%}'";
    case TokenType::kString:
      return "a text in quotes";
    default:
      return fmt::format("'{}'", current().text);
  }
}

Token TokenStream::expect(TokenType type, std::string_view wanted) {
  if (!is(type)) fail_at(line(), "expected {}, found {}", wanted, describe_current());
  return take();
}

void TokenStream::expect_operator(std::string_view text) {
  if (!skip_operator(text)) fail_at(line(), "expected '{}', found {}", text, describe_current());
}

void TokenStream::expect_name(std::string_view text) {
  if (!skip_name(text)) fail_at(line(), "expected '{}', found {}", text, describe_current());
}

}  // namespace atom::jinja
