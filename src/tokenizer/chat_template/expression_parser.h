// Parses expressions, by recursive descent with Jinja's precedences. The depth of recursion and the
// height of what it builds are bounded by kMaxSyntaxDepth. Throws TemplateError.
#pragma once

#include "tokenizer/chat_template/ast.h"
#include "tokenizer/chat_template/token_stream.h"

namespace atom::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream* tokens) : tokens_(*tokens) {}

  // One expression, or a tuple when a comma follows it. Without `allow_condition` an `if` behind it
  // is left alone (for x in y if z).
  ExpressionPtr parse_tuple(bool allow_condition);
  ExpressionPtr parse(bool allow_condition = true);

  // The `| filter` chain at the current token, applied to `input`.
  ExpressionPtr parse_filters(ExpressionPtr input);
  // The same when the first filter's '|' is missing, as in {% filter upper %}.
  ExpressionPtr parse_filters_after_bar(ExpressionPtr input);

  ExpressionPtr block_text(int line);

  // How often the name `loop` was read so far.
  int num_loop_reads() const { return num_loop_reads_; }

 private:
  ExpressionPtr parse_condition();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool allow_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_parentheses();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_strings();
  ExpressionPtr parse_postfix(ExpressionPtr object);
  ExpressionPtr parse_dot(ExpressionPtr object);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr input);
  ExpressionPtr parse_filter(ExpressionPtr input);
  ExpressionPtr parse_test(ExpressionPtr input);
  CallArguments parse_arguments();
  std::string parse_dotted_name(std::string_view wanted);
  bool at_tuple_end() const;

  TokenStream& tokens_;
  int depth_ = 0;
  int num_loop_reads_ = 0;
};

// The value of a text literal with its quotes: escapes as in Python.
std::string unescape_literal(std::string_view literal, int line);

}  // namespace atom::jinja
