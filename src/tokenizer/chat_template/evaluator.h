// Runs a syntax tree: one object for one rendering, on one thread. Every evaluation counts against
// the heap's steps and against the depth limit. Throws TemplateError.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/chat_template/arguments.h"
#include "tokenizer/chat_template/ast.h"
#include "tokenizer/chat_template/scope.h"

namespace atom::jinja {

class Evaluator {
 public:
  // `context` outlives the evaluator.
  explicit Evaluator(Context* context);

  // In the innermost scope.
  void set_variable(std::string_view name, Value value);

  std::string run(const Body& body);

  int line() const { return line_; }  // being evaluated, or where an error arose

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class DepthGuard;
  class ScopeGuard;

  // Text being written: the prompt, or what a macro or a block captures.
  struct Output {
    std::string text;
    Charge charge;
  };

  Flow execute(const Body& body);
  Flow execute(const DataStatement& statement);
  Flow execute(const OutputStatement& statement);
  Flow execute(const IfStatement& statement);
  Flow execute(const ForStatement& statement);
  Flow execute(const SetStatement& statement);
  Flow execute(const SetBlockStatement& statement);
  Flow execute(const FilterStatement& statement);
  Flow execute(const WithStatement& statement);
  Flow execute(const MacroStatement& statement);
  Flow execute(const BreakStatement&) { return Flow::kBreak; }
  Flow execute(const ContinueStatement&) { return Flow::kContinue; }

  Value evaluate(const Expression& expression);
  Value evaluate(const Literal& node) { return node.value; }
  Value evaluate(const Name& node);
  Value evaluate(const BlockText&) { return block_text_; }
  Value evaluate(const ListDisplay& node);
  Value evaluate(const DictDisplay& node);
  Value evaluate(const Unary& node);
  Value evaluate(const Binary& node);
  Value evaluate(const Logical& node);
  Value evaluate(const CompareChain& node);
  Value evaluate(const Concatenation& node);
  Value evaluate(const Conditional& node);
  Value evaluate(const AttributeAccess& node);
  Value evaluate(const ItemAccess& node);
  Value evaluate(const SliceAccess& node);
  Value evaluate(const Call& node);
  Value evaluate(const FilterCall& node);
  Value evaluate(const TestCall& node);

  Arguments evaluate_arguments(const CallArguments& arguments);
  std::optional<int64_t> slice_bound(const ExpressionPtr& expression);
  Value call_macro(const Function& function, const Arguments& arguments);
  void bind_parameters(const MacroStatement& macro, const Arguments& arguments);
  Value capture(const Body& body);
  Value filter_captured(const Expression& filters, Value text);
  void write(std::string_view text);
  void assign(const Target& target, const Value& value);
  Flow run_loop(const ForStatement& statement, const Items& items);
  Items choose_items(const ForStatement& statement, const Items& items);

  Context& context_;
  Heap& heap_;
  std::shared_ptr<Scope> scope_;
  Output* output_ = nullptr;
  Value block_text_;
  int line_ = 0;
  int depth_ = 0;
};

}  // namespace atom::jinja
