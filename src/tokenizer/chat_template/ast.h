// The syntax tree of a template. Immutable once parsed, so any number of threads may render it. Its
// height is at most kMaxSyntaxDepth, which bounds every recursion over it.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tokenizer/chat_template/expression.h"

namespace atom::jinja {

struct Statement;
using Body = std::vector<Statement>;

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
