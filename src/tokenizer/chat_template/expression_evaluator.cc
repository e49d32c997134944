// The expressions of the evaluator.
#include "tokenizer/chat_template/access.h"
#include "tokenizer/chat_template/evaluator.h"
#include "tokenizer/chat_template/evaluator_guards.h"
#include "tokenizer/chat_template/filters.h"
#include "tokenizer/chat_template/globals.h"
#include "tokenizer/chat_template/operators.h"
#include "tokenizer/chat_template/predicates.h"
#include "tokenizer/chat_template/template_error.h"
#include "tokenizer/chat_template/to_text.h"

namespace atom::jinja {

Value Evaluator::evaluate(const Expression& expression) {
  const DepthGuard guard(this);
  heap_.step();
  const int outer_line = line_;
  line_ = expression.line;
  Value value = std::visit([this](const auto& node) { return evaluate(node); }, expression.node);
  line_ = outer_line;  // not restored by an exception: an error keeps its line
  return value;
}

Value Evaluator::evaluate(const Name& node) {
  for (Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    heap_.step(scope->variables.size() / 16);
    if (const Value* value = scope->find(node.name)) return *value;
  }
  if (const NativeFunction function = find_global(node.name)) {
    return heap_.method(node.name, function, Value());
  }
  return Value::undefined(fmt::format("'{}' is undefined", node.name));
}

Value Evaluator::evaluate(const ListDisplay& node) {
  ValueList items;
  items.reserve(node.items.size());
  for (const ExpressionPtr& item : node.items) items.push_back(evaluate(*item));
  return node.is_tuple ? heap_.tuple(std::move(items)) : heap_.list(std::move(items));
}

Value Evaluator::evaluate(const DictDisplay& node) {
  std::vector<DictEntry> entries;
  for (const auto& [key_expression, value_expression] : node.entries) {
    Value key = evaluate(*key_expression);
    put_entry(heap_, &entries, std::move(key), evaluate(*value_expression));
  }
  return heap_.dict(std::move(entries));
}

Value Evaluator::evaluate(const Unary& node) {
  const Value operand = evaluate(*node.operand);
  switch (node.op) {
    case UnaryOperator::kNot:
      return Value::boolean(!operand.truthy());
    case UnaryOperator::kNegate:
      return negate(operand);
    case UnaryOperator::kPlus:
      return plus(operand);
  }
  return Value();
}

Value Evaluator::evaluate(const Binary& node) {
  const Value left = evaluate(*node.left);
  const Value right = evaluate(*node.right);
  return apply(heap_, node.op, left, right);
}

Value Evaluator::evaluate(const Logical& node) {
  Value left = evaluate(*node.left);
  return left.truthy() == node.is_and ? evaluate(*node.right) : left;
}

Value Evaluator::evaluate(const CompareChain& node) {
  Value left = evaluate(*node.first);
  for (const auto& [comparison, expression] : node.rest) {
    Value right = evaluate(*expression);
    if (!compare(heap_, comparison, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::evaluate(const Concatenation& node) {
  std::string text;
  Charge charge(&heap_, 0);
  for (const ExpressionPtr& part : node.parts) {
    const std::string part_text = to_text(heap_, evaluate(*part));
    charge.grow(part_text.size());
    text += part_text;
  }
  return heap_.string(std::move(text));
}

Value Evaluator::evaluate(const Conditional& node) {
  if (evaluate(*node.condition).truthy()) return evaluate(*node.value);
  if (node.otherwise) return evaluate(*node.otherwise);
  return Value::undefined("the condition of an 'if' without 'else' was false");
}

Value Evaluator::evaluate(const AttributeAccess& node) {
  const Value object = evaluate(*node.object);
  return get_attribute(heap_, object, node.name);
}

Value Evaluator::evaluate(const ItemAccess& node) {
  const Value object = evaluate(*node.object);
  return get_item(heap_, object, evaluate(*node.key));
}

std::optional<int64_t> Evaluator::slice_bound(const ExpressionPtr& expression) {
  if (!expression) return std::nullopt;
  const Value value = evaluate(*expression);
  if (value.is_none()) return std::nullopt;
  if (!value.is_integral()) fail("a slice needs ints, not {}", type_name(value));
  return value.integral();
}

Value Evaluator::evaluate(const SliceAccess& node) {
  const Value object = evaluate(*node.object);
  Slice slice;
  slice.start = slice_bound(node.start);
  slice.stop = slice_bound(node.stop);
  slice.step = slice_bound(node.step);
  return get_slice(heap_, object, slice);
}

Arguments Evaluator::evaluate_arguments(const CallArguments& arguments) {
  Arguments values;
  for (const ExpressionPtr& argument : arguments.positional) {
    values.positional.push_back(evaluate(*argument));
  }
  for (const auto& [name, argument] : arguments.named) {
    heap_.step(values.named.size() / 16);
    if (values.find_named(name) != nullptr) fail("the argument '{}' is given twice", name);
    values.named.emplace_back(name, evaluate(*argument));
  }
  return values;
}

Value Evaluator::evaluate(const Call& node) {
  const Value callee = evaluate(*node.callee);
  const Arguments arguments = evaluate_arguments(node.arguments);
  if (callee.is_undefined()) fail("{}", callee.undefined_reason());
  if (!callee.is_function()) fail("a value of type {} cannot be called", type_name(callee));
  const Function& function = callee.function();
  if (function.macro != nullptr) return call_macro(function, arguments);
  return function.native(context_, function.self, arguments);
}

Value Evaluator::evaluate(const FilterCall& node) {
  const NativeFunction filter = find_filter(node.name);
  if (filter == nullptr) fail("there is no filter '{}'", node.name);
  const Value input = evaluate(*node.input);
  return filter(context_, input, evaluate_arguments(node.arguments));
}

Value Evaluator::evaluate(const TestCall& node) {
  const Predicate predicate = find_predicate(node.name);
  if (predicate == nullptr) fail("there is no test '{}'", node.name);
  const Value input = evaluate(*node.input);
  const bool holds = predicate(context_, input, evaluate_arguments(node.arguments));
  return Value::boolean(holds != node.is_negated);
}

}  // namespace atom::jinja
