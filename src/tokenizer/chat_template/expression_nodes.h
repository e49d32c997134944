// Makes expressions no deeper than kMaxSyntaxDepth; all throw TemplateError beyond.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <utility>

#include "tokenizer/chat_template/ast.h"
#include "tokenizer/chat_template/limits.h"

namespace atom::jinja {

[[noreturn]] void fail_depth(int line);

template <typename Node>
ExpressionPtr make_expression(int line,
                              Node node,
                              std::initializer_list<const ExpressionPtr*> children = {}) {
  auto expression = std::make_unique<Expression>();
  expression->line = line;
  for (const ExpressionPtr* child : children) {
    if (*child) expression->height = std::max(expression->height, 1 + (*child)->height);
  }
  if (expression->height > kMaxSyntaxDepth) fail_depth(line);
  expression->node = std::move(node);
  return expression;
}

// For a child that `expression` gets after it was made.
void raise_height(Expression* expression, const ExpressionPtr& child);
void raise_height(Expression* expression, const CallArguments& arguments);

// Counts how deep a parser is while it lives.
class DepthGuard {
 public:
  DepthGuard(int* depth, int line) : depth_(*depth) {
    if (++depth_ > kMaxSyntaxDepth) fail_depth(line);
  }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int& depth_;
};

}  // namespace atom::jinja
