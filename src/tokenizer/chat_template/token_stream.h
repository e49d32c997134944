// The tokens of a template in order, with the checks that both parsers make.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/chat_template/lexer.h"

namespace atom::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[position_]; }
  const Token& next() const {
    return tokens_[position_ + 1 < tokens_.size() ? position_ + 1 : position_];
  }
  int line() const { return current().line; }

  bool is(TokenType type) const { return current().type == type; }
  bool is_operator(std::string_view text) const {
    return is(TokenType::kOperator) && current().text == text;
  }
  bool is_name(std::string_view text) const {
    return is(TokenType::kName) && current().text == text;
  }

  Token take() {
    const Token token = current();
    if (position_ + 1 < tokens_.size()) ++position_;
    return token;
  }
  bool skip_operator(std::string_view text) {
    const bool matches = is_operator(text);
    if (matches) take();
    return matches;
  }
  bool skip_name(std::string_view text) {
    const bool matches = is_name(text);
    if (matches) take();
    return matches;
  }

  // Each throws TemplateError naming what stands there instead. `wanted` describes it.
  Token expect(TokenType type, std::string_view wanted);
  void expect_operator(std::string_view text);
  void expect_name(std::string_view text);
  std::string describe_current() const;

 private:
  std::vector<Token> tokens_;
  size_t position_ = 0;
};

}  // namespace atom::jinja
