// Statements. Expressions are in expression_evaluator.cc.
#include "tokenizer/chat_template/evaluator.h"

#include "tokenizer/chat_template/access.h"
#include "tokenizer/chat_template/evaluator_guards.h"
#include "tokenizer/chat_template/template_error.h"
#include "tokenizer/chat_template/to_text.h"

namespace atom::jinja {

Evaluator::Evaluator(Context* context)
    : context_(*context), heap_(context->heap), scope_(std::make_shared<Scope>(nullptr)) {}

void Evaluator::set_variable(std::string_view name, Value value) {
  heap_.step(1 + scope_->variables.size() / 16);
  scope_->set(name, std::move(value));
}

std::string Evaluator::run(const Body& body) {
  Output output{{}, Charge(&heap_, 0)};
  output_ = &output;
  execute(body);
  output_ = nullptr;
  return std::move(output.text);
}

void Evaluator::write(std::string_view text) {
  heap_.step_bytes(text.size());
  if (text.size() > heap_.limits().max_output_size - output_->text.size()) {
    fail_limit("the output is longer than {} bytes", heap_.limits().max_output_size);
  }
  output_->charge.grow(text.size());
  output_->text += text;
}

Value Evaluator::capture(const Body& body) {
  Output captured{{}, Charge(&heap_, 0)};
  Output* const outer = std::exchange(output_, &captured);
  execute(body);
  output_ = outer;
  return heap_.string(std::move(captured.text));
}

Value Evaluator::filter_captured(const Expression& filters, Value text) {
  Value outer = std::exchange(block_text_, std::move(text));
  Value result = evaluate(filters);
  block_text_ = std::move(outer);
  return result;
}

Evaluator::Flow Evaluator::execute(const Body& body) {
  for (const Statement& statement : body) {
    const DepthGuard guard(this);
    heap_.step();
    line_ = statement.line;
    const Flow flow =
        std::visit([this](const auto& node) { return execute(node); }, statement.node);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::execute(const DataStatement& statement) {
  write(statement.text);
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::execute(const OutputStatement& statement) {
  const Value value = evaluate(*statement.value);
  if (value.is_string()) {
    write(value.text());
  } else {
    write(to_text(heap_, value));
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::execute(const IfStatement& statement) {
  for (const auto& [condition, body] : statement.branches) {
    if (evaluate(*condition).truthy()) return execute(body);
  }
  return execute(statement.otherwise);
}

Evaluator::Flow Evaluator::execute(const ForStatement& statement) {
  auto items = iterate(heap_, evaluate(*statement.iterable));
  if (statement.condition && statement.uses_loop) items = choose_items(statement, items);
  return run_loop(statement, items);
}

Items Evaluator::choose_items(const ForStatement& statement, const Items& items) {
  const ScopeGuard guard(this, scope_);
  ValueList chosen;
  for (const Value& item : items) {
    assign(statement.target, item);
    if (evaluate(*statement.condition).truthy()) chosen.push_back(item);
  }
  return Items(heap_.list(std::move(chosen)).sequence_pointer());
}

Evaluator::Flow Evaluator::run_loop(const ForStatement& statement, const Items& items) {
  const std::shared_ptr<Loop> loop = heap_.loop(items);
  const bool checks_condition = statement.condition && !statement.uses_loop;
  bool has_run = false;
  for (size_t i = 0; i < items.size(); ++i) {
    loop->index = i;
    const ScopeGuard guard(this, scope_);
    heap_.step();
    assign(statement.target, items[i]);
    if (checks_condition && !evaluate(*statement.condition).truthy()) continue;
    if (statement.uses_loop) set_variable("loop", Value(loop));
    has_run = true;
    if (execute(statement.body) == Flow::kBreak) break;
  }
  if (has_run) return Flow::kNormal;
  const ScopeGuard guard(this, scope_);
  return execute(statement.otherwise);
}

Evaluator::Flow Evaluator::execute(const SetStatement& statement) {
  assign(statement.target, evaluate(*statement.value));
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::execute(const SetBlockStatement& statement) {
  Value text;
  {
    const ScopeGuard guard(this, scope_);
    text = capture(statement.body);
  }
  assign(statement.target, filter_captured(*statement.value, std::move(text)));
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::execute(const FilterStatement& statement) {
  Value text;
  {
    const ScopeGuard guard(this, scope_);
    text = capture(statement.body);
  }
  write(to_text(heap_, filter_captured(*statement.value, std::move(text))));
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::execute(const WithStatement& statement) {
  ValueList values;
  for (const auto& [target, value] : statement.assignments) values.push_back(evaluate(*value));
  const ScopeGuard guard(this, scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(statement.assignments[i].first, values[i]);
  return execute(statement.body);
}

Evaluator::Flow Evaluator::execute(const MacroStatement& statement) {
  set_variable(statement.name, heap_.macro(statement, statement.name, scope_));
  return Flow::kNormal;
}

void Evaluator::assign(const Target& target, const Value& value) {
  if (!target.elements.empty()) {
    if (value.is_undefined()) fail("{}", value.undefined_reason());
    const auto parts = iterate(heap_, value);
    if (parts.size() != target.elements.size()) {
      fail("cannot unpack {} values into {} names", parts.size(), target.elements.size());
    }
    for (size_t i = 0; i < parts.size(); ++i) assign(target.elements[i], parts[i]);
    return;
  }
  if (target.attribute.empty()) {
    set_variable(target.name, value);
    return;
  }
  const Value object = evaluate(Name{target.name});
  if (!object.is_namespace()) {
    fail("'{}.{}' can be set when '{}' is a namespace, not a value of type {}",
         target.name,
         target.attribute,
         target.name,
         type_name(object));
  }
  Namespace& name_space = object.name_space();
  heap_.step(name_space.attributes.size() / 16);
  for (auto& [name, existing] : name_space.attributes) {
    if (name == target.attribute) {
      existing = value;
      return;
    }
  }
  name_space.charge.grow(target.attribute.size() + sizeof(DictEntry));
  name_space.attributes.emplace_back(target.attribute, value);
}

Value Evaluator::call_macro(const Function& function, const Arguments& arguments) {
  const ScopeGuard guard(this, function.closure);
  const int line = line_;
  bind_parameters(*function.macro, arguments);
  Value result = capture(function.macro->body);
  line_ = line;
  return result;
}

void Evaluator::bind_parameters(const MacroStatement& macro, const Arguments& arguments) {
  const size_t num_parameters = macro.parameters.size();
  if (arguments.positional.size() > num_parameters) {
    fail("macro '{}' takes at most {} arguments, not {}",
         macro.name,
         num_parameters,
         arguments.positional.size());
  }
  size_t num_named = 0;
  heap_.step(num_parameters * arguments.named.size() / 16);
  for (size_t i = 0; i < num_parameters; ++i) {
    const MacroParameter& parameter = macro.parameters[i];
    const Value* named = arguments.find_named(parameter.name);
    if (named != nullptr) ++num_named;
    if (i < arguments.positional.size()) {
      if (named != nullptr) fail("macro '{}' got '{}' twice", macro.name, parameter.name);
      set_variable(parameter.name, arguments.positional[i]);
    } else if (named != nullptr) {
      set_variable(parameter.name, *named);
    } else if (parameter.fallback) {
      set_variable(parameter.name, evaluate(*parameter.fallback));
    } else {
      set_variable(parameter.name,
                   Value::undefined(fmt::format(
                       "parameter '{}' of macro '{}' was not given", parameter.name, macro.name)));
    }
  }
  if (num_named < arguments.named.size()) {
    fail("macro '{}' takes no argument '{}'", macro.name, arguments.named.back().first);
  }
}

}  // namespace atom::jinja
