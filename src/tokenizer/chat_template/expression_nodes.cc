#include "tokenizer/chat_template/expression_nodes.h"

#include "tokenizer/chat_template/template_error.h"

namespace atom::jinja {

void fail_depth(int line) {
  throw TemplateError(StatusCode::kResourceExhausted,
                      fmt::format("the syntax is nested deeper than {} levels", kMaxSyntaxDepth),
                      line);
}

void raise_height(Expression* expression, const ExpressionPtr& child) {
  expression->height = std::max(expression->height, 1 + child->height);
  if (expression->height > kMaxSyntaxDepth) fail_depth(expression->line);
}

void raise_height(Expression* expression, const CallArguments& arguments) {
  for (const ExpressionPtr& argument : arguments.positional) raise_height(expression, argument);
  for (const auto& [name, argument] : arguments.named) raise_height(expression, argument);
}

}  // namespace atom::jinja
