// The syntax tree of a template. Immutable once parsed, so any number of threads may render it. Its
// height is at most kMaxSyntaxDepth, which bounds every recursion over it.
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
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<Statement>;

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

// What `set` and `for` assign to: a name, namespace.attribute, or several targets.
struct Target {
  std::string name;
  std::string attribute;
  std::vector<Target> elements;  // not empty: unpack
};

struct DataStatement {
  std::string text;
};
struct OutputStatement {
  ExpressionPtr value;
};
struct IfStatement {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct ForStatement {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr condition;  // null: every item
  Body body;
  Body otherwise;
  bool uses_loop;  // the body reads `loop`, so that the items are chosen before the first iteration
};
struct SetStatement {
  Target target;
  ExpressionPtr value;
};
struct SetBlockStatement {
  Target target;
  ExpressionPtr value;  // filters over BlockText
  Body body;
};
struct FilterStatement {
  ExpressionPtr value;  // filters over BlockText
  Body body;
};
struct WithStatement {  // also {% generation %}, without assignments
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Body body;
};
struct MacroParameter {
  std::string name;
  ExpressionPtr fallback;  // null: none
};
struct MacroStatement {
  std::string name;
  std::vector<MacroParameter> parameters;
  Body body;
};
struct BreakStatement {};
struct ContinueStatement {};

struct Statement {
  int line = 0;
  std::variant<DataStatement,
               OutputStatement,
               IfStatement,
               ForStatement,
               SetStatement,
               SetBlockStatement,
               FilterStatement,
               WithStatement,
               MacroStatement,
               BreakStatement,
               ContinueStatement>
      node;
};

}  // namespace atom::jinja
