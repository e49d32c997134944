// The expressions of a template's syntax tree (ast.h).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tokenizer/chat_template/operators.h"
#include "tokenizer/chat_template/value.h"

namespace atom::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct BlockText {};  // the captured text that the filters of a block apply to
struct ListDisplay {
  std::vector<ExpressionPtr> items;
  bool is_tuple;
};
struct DictDisplay {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
enum class UnaryOperator { kNot, kNegate, kPlus };
struct Unary {
  UnaryOperator op;
  ExpressionPtr operand;
};
struct Binary {
  BinaryOperator op;
  ExpressionPtr left, right;
};
struct Logical {
  bool is_and;  // else or
  ExpressionPtr left, right;
};
struct CompareChain {  // a < b < c
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
};
struct Concatenation {  // a ~ b ~ c
  std::vector<ExpressionPtr> parts;
};
struct Conditional {
  ExpressionPtr condition, value;
  ExpressionPtr otherwise;  // null: undefined
};
struct AttributeAccess {
  ExpressionPtr object;
  std::string name;
};
struct ItemAccess {
  ExpressionPtr object, key;
};
struct SliceAccess {
  ExpressionPtr object;
  ExpressionPtr start, stop, step;  // each may be null
};
struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};
struct FilterCall {
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
};
struct TestCall {
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
  bool is_negated;
};

struct Expression {
  int line = 0;
  int height = 1;
  std::variant<Literal,
               Name,
               BlockText,
               ListDisplay,
               DictDisplay,
               Unary,
               Binary,
               Logical,
               CompareChain,
               Concatenation,
               Conditional,
               AttributeAccess,
               ItemAccess,
               SliceAccess,
               Call,
               FilterCall,
               TestCall>
      node;
};

}  // namespace atom::jinja
