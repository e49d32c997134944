#include "tokenizer/chat_template/predicates.h"

#include "tokenizer/chat_template/filters.h"
#include "tokenizer/chat_template/operators.h"
#include "tokenizer/chat_template/template_error.h"
#include "tokenizer/chat_template/to_text.h"
#include "tokenizer/chat_template/unicode.h"

namespace atom::jinja {
namespace {

// A test without arguments.
template <bool (*test)(const Value&)>
bool simple(Context&, const Value& value, const Arguments& arguments) {
  BoundArguments("is", arguments, {});
  return test(value);
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_string(const Value& value) {
  return value.is_string();
}
bool is_mapping(const Value& value) {
  return value.is_dict();
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_integer(const Value& value) {
  return value.is_integer();
}
bool is_float(const Value& value) {
  return value.is_real();
}
bool is_boolean(const Value& value) {
  return value.is_boolean();
}
bool is_true(const Value& value) {
  return value.is_boolean() && value.boolean();
}
bool is_false(const Value& value) {
  return value.is_boolean() && !value.boolean();
}
bool is_callable(const Value& value) {
  return value.is_function();
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_dict() || value.is_sequence();
}

// What has a length and items by index.
bool is_sequence(const Value& value) {
  if (value.is_undefined() || value.is_string() || value.is_dict()) return true;
  if (!value.is_sequence()) return false;
  const SequenceKind kind = value.sequence().kind;
  return kind == SequenceKind::kList || kind == SequenceKind::kTuple ||
         kind == SequenceKind::kRange;
}

template <Comparison comparison>
bool compares(Context& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("is", arguments, {"other"}, 1);
  return compare(context.heap, comparison, value, *bound.get(0));
}

bool divisible_by(Context& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("divisibleby", arguments, {"num"}, 1);
  const Value rest = apply(context.heap, BinaryOperator::kModulo, value, *bound.get(0));
  return compare(context.heap, Comparison::kEqual, rest, Value::integer(0));
}

template <int remainder>
bool has_parity(Context& context, const Value& value, const Arguments& arguments) {
  BoundArguments("odd and even", arguments, {});
  const Value rest = apply(context.heap, BinaryOperator::kModulo, value, Value::integer(2));
  return compare(context.heap, Comparison::kEqual, rest, Value::integer(remainder));
}

bool same_as(Context& context, const Value& value, const Arguments& arguments) {
  const BoundArguments bound("sameas", arguments, {"other"}, 1);
  return same_object(context.heap, value, *bound.get(0));
}

template <std::string (*map)(std::string_view), bool (*cased)(char32_t)>
bool has_case(Context& context, const Value& value, const Arguments& arguments) {
  BoundArguments("lower and upper", arguments, {});
  const std::string text = to_text(context.heap, value);
  context.heap.step_characters(2 * text.size());
  if (map(text) != text) return false;
  for (size_t position = 0; position < text.size();) {
    if (cased(next_code_point(text, &position))) return true;
  }
  return false;
}

bool names_filter(Context&, const Value& value, const Arguments& arguments) {
  BoundArguments("filter", arguments, {});
  return value.is_string() && find_filter(value.text()) != nullptr;
}

bool names_test(Context&, const Value& value, const Arguments& arguments) {
  BoundArguments("test", arguments, {});
  return value.is_string() && find_predicate(value.text()) != nullptr;
}

struct PredicateEntry {
  std::string_view name;
  Predicate predicate;
};

constexpr PredicateEntry kPredicates[] = {
    {"defined", simple<is_defined>},
    {"undefined", simple<is_undefined>},
    {"none", simple<is_none>},
    {"string", simple<is_string>},
    {"mapping", simple<is_mapping>},
    {"iterable", simple<is_iterable>},
    {"sequence", simple<is_sequence>},
    {"true", simple<is_true>},
    {"false", simple<is_false>},
    {"boolean", simple<is_boolean>},
    {"number", simple<is_number>},
    {"integer", simple<is_integer>},
    {"float", simple<is_float>},
    {"callable", simple<is_callable>},
    {"equalto", compares<Comparison::kEqual>},
    {"eq", compares<Comparison::kEqual>},
    {"==", compares<Comparison::kEqual>},
    {"ne", compares<Comparison::kNotEqual>},
    {"!=", compares<Comparison::kNotEqual>},
    {"lt", compares<Comparison::kLess>},
    {"lessthan", compares<Comparison::kLess>},
    {"<", compares<Comparison::kLess>},
    {"le", compares<Comparison::kLessEqual>},
    {"<=", compares<Comparison::kLessEqual>},
    {"gt", compares<Comparison::kGreater>},
    {"greaterthan", compares<Comparison::kGreater>},
    {">", compares<Comparison::kGreater>},
    {"ge", compares<Comparison::kGreaterEqual>},
    {">=", compares<Comparison::kGreaterEqual>},
    {"in", compares<Comparison::kIn>},
    {"odd", has_parity<1>},
    {"even", has_parity<0>},
    {"divisibleby", divisible_by},
    {"sameas", same_as},
    {"lower", has_case<to_lower, is_lower>},
    {"upper", has_case<to_upper, is_upper>},
    {"filter", names_filter},
    {"test", names_test},
};

}  // namespace

Predicate find_predicate(std::string_view name) {
  for (const PredicateEntry& entry : kPredicates) {
    if (entry.name == name) return entry.predicate;
  }
  return nullptr;
}

}  // namespace atom::jinja
