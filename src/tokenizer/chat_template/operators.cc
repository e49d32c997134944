#include "tokenizer/chat_template/operators.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <limits>

#include "tokenizer/chat_template/access.h"
#include "tokenizer/chat_template/printf_format.h"
#include "tokenizer/chat_template/split_text.h"
#include "tokenizer/chat_template/template_error.h"

namespace atom::jinja {
namespace {

const char* symbol(BinaryOperator op) {
  switch (op) {
    case BinaryOperator::kAdd:
      return "+";
    case BinaryOperator::kSubtract:
      return "-";
    case BinaryOperator::kMultiply:
      return "*";
    case BinaryOperator::kDivide:
      return "/";
    case BinaryOperator::kFloorDivide:
      return "//";
    case BinaryOperator::kModulo:
      return "%";
    case BinaryOperator::kPower:
      return "**";
  }
  return "?";
}

void require_defined(const Value& left, const Value& right) {
  if (left.is_undefined()) fail("{}", left.undefined_reason());
  if (right.is_undefined()) fail("{}", right.undefined_reason());
}

[[noreturn]] void fail_overflow(BinaryOperator op, int64_t left, int64_t right) {
  fail("{} {} {} does not fit a 64-bit integer", left, symbol(op), right);
}

int64_t integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  const int64_t original_base = base;
  const int64_t original_exponent = exponent;
  while (exponent > 0) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) {
      fail_overflow(BinaryOperator::kPower, original_base, original_exponent);
    }
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
      fail_overflow(BinaryOperator::kPower, original_base, original_exponent);
    }
  }
  return result;
}

Value integer_operation(BinaryOperator op, int64_t left, int64_t right) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOperator::kAdd:
      overflow = __builtin_add_overflow(left, right, &result);
      break;
    case BinaryOperator::kSubtract:
      overflow = __builtin_sub_overflow(left, right, &result);
      break;
    case BinaryOperator::kMultiply:
      overflow = __builtin_mul_overflow(left, right, &result);
      break;
    case BinaryOperator::kDivide:
      if (right == 0) fail("division by zero");
      return Value::real(static_cast<double>(left) / static_cast<double>(right));
    case BinaryOperator::kFloorDivide:
    case BinaryOperator::kModulo:
      if (right == 0) fail("division by zero");
      if (right == -1) {  // the one quotient that overflows has this divisor
        if (op == BinaryOperator::kModulo) return Value::integer(0);
        overflow = __builtin_sub_overflow(int64_t{0}, left, &result);
        break;
      }
      result = op == BinaryOperator::kModulo ? left % right : left / right;
      if (left % right != 0 && ((left < 0) != (right < 0))) {
        result += op == BinaryOperator::kModulo ? right : -1;
      }
      break;
    case BinaryOperator::kPower:
      if (right < 0) {
        if (left == 0) fail("0 cannot be raised to a negative power");
        return Value::real(std::pow(static_cast<double>(left), static_cast<double>(right)));
      }
      result = integer_power(left, right);
      break;
  }
  if (overflow) fail_overflow(op, left, right);
  return Value::integer(result);
}

Value real_operation(BinaryOperator op, double left, double right) {
  switch (op) {
    case BinaryOperator::kAdd:
      return Value::real(left + right);
    case BinaryOperator::kSubtract:
      return Value::real(left - right);
    case BinaryOperator::kMultiply:
      return Value::real(left * right);
    case BinaryOperator::kPower: {
      if (left == 0 && right < 0) fail("0.0 cannot be raised to a negative power");
      if (left < 0 && right != std::floor(right)) fail("a negative number to a fractional power");
      return Value::real(std::pow(left, right));
    }
    default:
      break;
  }
  if (right == 0) fail("float division by zero");
  if (op == BinaryOperator::kDivide) return Value::real(left / right);
  double remainder = std::fmod(left, right);
  if (remainder != 0 && ((remainder < 0) != (right < 0))) remainder += right;
  if (op == BinaryOperator::kModulo) {
    return Value::real(remainder == 0 ? std::copysign(0.0, right) : remainder);
  }
  return Value::real(std::round((left - remainder) / right));
}

bool is_list_or_tuple(const Value& value) {
  return value.is_sequence() && (value.sequence().kind == SequenceKind::kList ||
                                 value.sequence().kind == SequenceKind::kTuple);
}

Value repeat(Heap& heap, const Value& value, int64_t times) {
  const size_t count = times > 0 ? static_cast<size_t>(times) : 0;
  const size_t unit = value.is_string() ? value.text().size() : value.sequence().items.size();
  const size_t unit_size = value.is_string() ? 1 : sizeof(Value);
  size_t bytes = 0;
  if (__builtin_mul_overflow(unit * unit_size, count, &bytes)) {
    bytes = std::numeric_limits<size_t>::max();
  }
  heap.require(bytes);
  heap.step_bytes(bytes);
  if (value.is_string()) {
    std::string out;
    out.reserve(bytes);
    if (bytes > 0) out = value.text();
    while (out.size() < bytes) out.append(out, 0, bytes - out.size());
    return heap.string(std::move(out));
  }
  ValueList items;
  items.reserve(unit * count);
  for (size_t i = 0; unit > 0 && i < count; ++i) {
    items.insert(items.end(), value.sequence().items.begin(), value.sequence().items.end());
  }
  return heap.sequence(value.sequence().kind, std::move(items));
}

Value concatenate(Heap& heap, const Value& left, const Value& right) {
  if (left.is_string()) {
    heap.require(left.text().size() + right.text().size());
    heap.step_bytes(left.text().size() + right.text().size());
    return heap.string(left.text() + right.text());
  }
  const size_t size = left.sequence().items.size() + right.sequence().items.size();
  heap.require(size * sizeof(Value));
  heap.step(1 + size / 8);
  ValueList items = left.sequence().items;
  items.insert(items.end(), right.sequence().items.begin(), right.sequence().items.end());
  return heap.sequence(left.sequence().kind, std::move(items));
}

bool equal_items(Heap& heap, const ValueList& left, const ValueList& right) {
  if (left.size() != right.size()) return false;
  for (size_t i = 0; i < left.size(); ++i) {
    if (!equal(heap, left[i], right[i])) return false;
  }
  return true;
}

bool equal_dicts(Heap& heap, const Dict& left, const Dict& right) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const DictEntry& entry : left.entries) {
    const Value* other = find_key(heap, right, entry.key);
    if (other == nullptr || !equal(heap, entry.value, *other)) return false;
  }
  return true;
}

std::partial_ordering order_numbers(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) return left.integral() <=> right.integral();
  // 64 bits of mantissa: exact for every int64 and double.
  const auto exact = [](const Value& value) {
    return value.is_real() ? static_cast<long double>(value.number())
                           : static_cast<long double>(value.integral());
  };
  return exact(left) <=> exact(right);
}

std::partial_ordering order(Heap& heap, const Value& left, const Value& right, const char* op) {
  heap.step();
  require_defined(left, right);
  if (left.is_number() && right.is_number()) return order_numbers(left, right);
  if (left.is_string() && right.is_string()) {
    heap.step_bytes(std::min(left.text().size(), right.text().size()));
    return left.text().compare(right.text()) <=> 0;  // byte order is code point order in UTF-8
  }
  if (is_list_or_tuple(left) && is_list_or_tuple(right) &&
      left.sequence().kind == right.sequence().kind) {
    const ValueList& a = left.sequence().items;
    const ValueList& b = right.sequence().items;
    for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
      if (!equal(heap, a[i], b[i])) return order(heap, a[i], b[i], op);
    }
    return a.size() <=> b.size();
  }
  fail("'{}' cannot compare {} and {}", op, type_name(left), type_name(right));
}

// entries.size() when there is no such key.
size_t index_of_key(Heap& heap, const std::vector<DictEntry>& entries, const Value& key) {
  if (key.is_dict() || (key.is_sequence() && key.sequence().kind == SequenceKind::kList)) {
    fail("a {} cannot be the key of a dict", type_name(key));
  }
  heap.step(1 + entries.size() / 16);
  size_t index = 0;
  for (; index < entries.size(); ++index) {
    const Value& candidate = entries[index].key;
    if (key.is_string() != candidate.is_string()) continue;
    if (key.is_string() ? same_text(heap, key.text(), candidate.text())
                        : equal(heap, key, candidate)) {
      break;
    }
  }
  return index;
}

}  // namespace

Value apply(Heap& heap, BinaryOperator op, const Value& left, const Value& right) {
  heap.step();
  require_defined(left, right);
  if (op == BinaryOperator::kModulo && left.is_string()) {
    return printf_format(heap, left.text(), right);
  }
  if (left.is_integral() && right.is_integral()) {
    return integer_operation(op, left.integral(), right.integral());
  }
  if (left.is_number() && right.is_number()) {
    return real_operation(op, left.number(), right.number());
  }
  const bool both_text = left.is_string() && right.is_string();
  const bool both_lists = is_list_or_tuple(left) && is_list_or_tuple(right) &&
                          left.sequence().kind == right.sequence().kind;
  if (op == BinaryOperator::kAdd && (both_text || both_lists))
    return concatenate(heap, left, right);
  if (op == BinaryOperator::kMultiply) {
    if ((left.is_string() || is_list_or_tuple(left)) && right.is_integral()) {
      return repeat(heap, left, right.integral());
    }
    if (left.is_integral() && (right.is_string() || is_list_or_tuple(right))) {
      return repeat(heap, right, left.integral());
    }
  }
  const bool one_text = op == BinaryOperator::kAdd && (left.is_string() || right.is_string());
  fail("'{}' cannot combine {} and {}{}",
       symbol(op),
       type_name(left),
       type_name(right),
       one_text ? "; '~' or '|string' makes text of any value" : "");
}

Value negate(const Value& value) {
  if (value.is_undefined()) fail("{}", value.undefined_reason());
  if (value.is_real()) return Value::real(-value.number());
  if (!value.is_integral()) fail("'-' needs a number, not {}", type_name(value));
  return integer_operation(BinaryOperator::kSubtract, 0, value.integral());
}

Value plus(const Value& value) {
  if (value.is_undefined()) fail("{}", value.undefined_reason());
  if (!value.is_number()) fail("'+' needs a number, not {}", type_name(value));
  return value.is_boolean() ? Value::integer(value.integral()) : value;
}

bool equal(Heap& heap, const Value& left, const Value& right) {
  heap.step();
  if (left.is_number() && right.is_number()) return order_numbers(left, right) == 0;
  if (left.is_string() && right.is_string()) return same_text(heap, left.text(), right.text());
  if (left.is_dict() && right.is_dict()) return equal_dicts(heap, left.dict(), right.dict());
  if (left.is_sequence() && right.is_sequence() && left.sequence().kind == right.sequence().kind &&
      left.sequence().kind != SequenceKind::kGenerator &&
      left.sequence().kind != SequenceKind::kDictValues) {
    return equal_items(heap, left.sequence().items, right.sequence().items);
  }
  return left.same_object(right);
}

bool same_text(Heap& heap, std::string_view left, std::string_view right) {
  if (left.size() != right.size()) return false;
  if (left.size() >= 64) heap.step_bytes(left.size());
  return left == right;
}

bool same_object(Heap& heap, const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) return same_text(heap, left.text(), right.text());
  return left.same_object(right);
}

bool less(Heap& heap, const Value& left, const Value& right) {
  return order(heap, left, right, "<") < 0;
}

bool contains(Heap& heap, const Value& container, const Value& item) {
  heap.step();
  if (container.is_string()) {
    if (item.is_undefined()) fail("{}", item.undefined_reason());
    if (!item.is_string()) {
      fail("'in' a str needs a str on the left, not {}", type_name(item));
    }
    return find_in(heap, container.text(), item.text()) != std::string_view::npos;
  }
  if (container.is_dict()) return find_key(heap, container.dict(), item) != nullptr;
  if (container.is_undefined()) return false;
  if (!container.is_sequence()) {
    fail("'in' needs a list, dict or str on the right, not {}", type_name(container));
  }
  for (const Value& member : iterate(heap, container)) {
    if (same_object(heap, member, item) || equal(heap, member, item)) return true;
  }
  return false;
}

bool compare(Heap& heap, Comparison comparison, const Value& left, const Value& right) {
  switch (comparison) {
    case Comparison::kEqual:
      return equal(heap, left, right);
    case Comparison::kNotEqual:
      return !equal(heap, left, right);
    case Comparison::kLess:
      return order(heap, left, right, "<") < 0;
    case Comparison::kLessEqual:
      return order(heap, left, right, "<=") <= 0;
    case Comparison::kGreater:
      return order(heap, left, right, ">") > 0;
    case Comparison::kGreaterEqual:
      return order(heap, left, right, ">=") >= 0;
    case Comparison::kIn:
      return contains(heap, right, left);
    case Comparison::kNotIn:
      return !contains(heap, right, left);
  }
  return false;
}

const Value* find_key(Heap& heap, const Dict& dict, const Value& key) {
  const size_t index = index_of_key(heap, dict.entries, key);
  return index < dict.entries.size() ? &dict.entries[index].value : nullptr;
}

void put_entry(Heap& heap, std::vector<DictEntry>* entries, Value key, Value value) {
  const size_t index = index_of_key(heap, *entries, key);
  if (index < entries->size()) {
    (*entries)[index].value = std::move(value);
  } else {
    entries->push_back({std::move(key), std::move(value)});
  }
}

}  // namespace atom::jinja
