#include "tokenizer/chat_template/template_traits.h"

#include <functional>
#include <map>

namespace atom::jinja {
namespace {

// Calls back for every expression and statement of a template.
class Walker {
 public:
  using OnExpression = std::function<void(const Expression&)>;
  using OnStatement = std::function<void(const Statement&)>;

  Walker(OnExpression on_expression, OnStatement on_statement)
      : on_expression_(std::move(on_expression)), on_statement_(std::move(on_statement)) {}

  void walk(const Body& body) {
    for (const Statement& statement : body) {
      on_statement_(statement);
      std::visit([this](const auto& node) { children(node); }, statement.node);
    }
  }

 private:
  void walk(const ExpressionPtr& expression) {
    if (!expression) return;
    on_expression_(*expression);
    std::visit([this](const auto& node) { children(node); }, expression->node);
  }
  void walk(const CallArguments& arguments) {
    for (const ExpressionPtr& argument : arguments.positional) walk(argument);
    for (const auto& [name, argument] : arguments.named) walk(argument);
  }

  void children(const DataStatement&) {}
  void children(const BreakStatement&) {}
  void children(const ContinueStatement&) {}
  void children(const OutputStatement& node) { walk(node.value); }
  void children(const IfStatement& node) {
    for (const auto& [condition, body] : node.branches) {
      walk(condition);
      walk(body);
    }
    walk(node.otherwise);
  }
  void children(const ForStatement& node) {
    walk(node.iterable);
    walk(node.condition);
    walk(node.body);
    walk(node.otherwise);
  }
  void children(const SetStatement& node) { walk(node.value); }
  void children(const SetBlockStatement& node) {
    walk(node.value);
    walk(node.body);
  }
  void children(const FilterStatement& node) {
    walk(node.value);
    walk(node.body);
  }
  void children(const WithStatement& node) {
    for (const auto& [target, value] : node.assignments) walk(value);
    walk(node.body);
  }
  void children(const MacroStatement& node) {
    for (const MacroParameter& parameter : node.parameters) walk(parameter.fallback);
    walk(node.body);
  }

  void children(const Literal&) {}
  void children(const Name&) {}
  void children(const BlockText&) {}
  void children(const ListDisplay& node) {
    for (const ExpressionPtr& item : node.items) walk(item);
  }
  void children(const DictDisplay& node) {
    for (const auto& [key, value] : node.entries) {
      walk(key);
      walk(value);
    }
  }
  void children(const Unary& node) { walk(node.operand); }
  void children(const Binary& node) {
    walk(node.left);
    walk(node.right);
  }
  void children(const Logical& node) {
    walk(node.left);
    walk(node.right);
  }
  void children(const CompareChain& node) {
    walk(node.first);
    for (const auto& [comparison, operand] : node.rest) walk(operand);
  }
  void children(const Concatenation& node) {
    for (const ExpressionPtr& part : node.parts) walk(part);
  }
  void children(const Conditional& node) {
    walk(node.condition);
    walk(node.value);
    walk(node.otherwise);
  }
  void children(const AttributeAccess& node) { walk(node.object); }
  void children(const ItemAccess& node) {
    walk(node.object);
    walk(node.key);
  }
  void children(const SliceAccess& node) {
    walk(node.object);
    walk(node.start);
    walk(node.stop);
    walk(node.step);
  }
  void children(const Call& node) {
    walk(node.callee);
    walk(node.arguments);
  }
  void children(const FilterCall& node) {
    walk(node.input);
    walk(node.arguments);
  }
  void children(const TestCall& node) {
    walk(node.input);
    walk(node.arguments);
  }

  OnExpression on_expression_;
  OnStatement on_statement_;
};

bool is_text(const ExpressionPtr& expression, std::string_view text) {
  const auto* literal = std::get_if<Literal>(&expression->node);
  return literal != nullptr && literal->value.is_string() && literal->value.text() == text;
}

class ContentTracker {
 public:
  explicit ContentTracker(const Body& body) {
    Walker([](const Expression&) {},
           [this](const Statement& statement) {
             if (const auto* macro = std::get_if<MacroStatement>(&statement.node)) {
               macros_[macro->name] = macro;
             }
           })
        .walk(body);
    // Content may pass through a variable into a macro and on: until no new name turns up.
    for (size_t known = 1; known != names_.size();) {
      known = names_.size();
      Walker([this](const Expression& expression) { follow_call(expression); },
             [this](const Statement& statement) { follow_set(statement); })
          .walk(body);
      if (known == names_.size()) break;
    }
  }

  // Whether the expression gives a message's content, as it is or filtered.
  bool is_content(const ExpressionPtr& expression) const {
    if (!expression) return false;
    if (const auto* name = std::get_if<Name>(&expression->node)) return names_.contains(name->name);
    if (const auto* access = std::get_if<AttributeAccess>(&expression->node)) {
      return access->name == "content";
    }
    if (const auto* access = std::get_if<ItemAccess>(&expression->node)) {
      return is_text(access->key, "content");
    }
    if (const auto* filter = std::get_if<FilterCall>(&expression->node)) {
      return is_content(filter->input);
    }
    if (const auto* conditional = std::get_if<Conditional>(&expression->node)) {
      return is_content(conditional->value) || is_content(conditional->otherwise);
    }
    return false;
  }

 private:
  void follow_set(const Statement& statement) {
    const auto* set = std::get_if<SetStatement>(&statement.node);
    if (set == nullptr || set->target.name.empty() || !set->target.attribute.empty()) return;
    if (is_content(set->value)) names_.insert(set->target.name);
  }

  void follow_call(const Expression& expression) {
    const auto* call = std::get_if<Call>(&expression.node);
    if (call == nullptr) return;
    const auto* callee = std::get_if<Name>(&call->callee->node);
    const auto found = callee ? macros_.find(callee->name) : macros_.end();
    if (found == macros_.end()) return;
    const auto& parameters = found->second->parameters;
    for (size_t i = 0; i < call->arguments.positional.size() && i < parameters.size(); ++i) {
      if (is_content(call->arguments.positional[i])) names_.insert(parameters[i].name);
    }
    for (const auto& [name, argument] : call->arguments.named) {
      if (is_content(argument)) names_.insert(name);
    }
  }

  std::map<std::string, const MacroStatement*> macros_;
  std::set<std::string> names_;
};

}  // namespace

ChatTemplateTraits find_traits(const Body& body) {
  const ContentTracker content(body);
  ChatTemplateTraits traits;
  const auto on_expression = [&](const Expression& expression) {
    if (const auto* literal = std::get_if<Literal>(&expression.node)) {
      traits.mentions_developer |= literal->value.is_string() &&
                                   literal->value.text().find("developer") != std::string::npos;
    }
    if (const auto* test = std::get_if<TestCall>(&expression.node)) {
      traits.tests_null_content |= test->name == "none" && content.is_content(test->input);
      traits.tests_string_content |= test->name == "string" && content.is_content(test->input);
    }
    if (const auto* chain = std::get_if<CompareChain>(&expression.node)) {
      for (const auto& [comparison, operand] : chain->rest) {
        const auto* literal = std::get_if<Literal>(&operand->node);
        traits.tests_null_content |=
            literal != nullptr && literal->value.is_none() && content.is_content(chain->first);
      }
    }
  };
  Walker(on_expression, [&](const Statement& statement) {
    const auto* loop = std::get_if<ForStatement>(&statement.node);
    traits.iterates_content |= loop != nullptr && content.is_content(loop->iterable);
  }).walk(body);
  return traits;
}

std::set<std::string> find_names(const Body& body) {
  std::set<std::string> names;
  Walker(
      [&names](const Expression& expression) {
        if (const auto* name = std::get_if<Name>(&expression.node)) names.insert(name->name);
      },
      [&names](const Statement& statement) {
        const auto* set = std::get_if<SetStatement>(&statement.node);
        if (set != nullptr && !set->target.attribute.empty()) names.insert(set->target.name);
      })
      .walk(body);
  return names;
}

}  // namespace atom::jinja
