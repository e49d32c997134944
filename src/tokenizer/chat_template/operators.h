// Python's operators on values. Whatever Python raises for is a TemplateError here.
#pragma once

#include <string_view>
#include <vector>

#include "tokenizer/chat_template/heap.h"
#include "tokenizer/chat_template/value.h"

namespace atom::jinja {

enum class BinaryOperator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };

enum class Comparison {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

Value apply(Heap& heap, BinaryOperator op, const Value& left, const Value& right);
Value negate(const Value& value);
Value plus(const Value& value);

bool compare(Heap& heap, Comparison comparison, const Value& left, const Value& right);
bool equal(Heap& heap, const Value& left, const Value& right);
bool same_text(Heap& heap, std::string_view left, std::string_view right);
bool same_object(Heap& heap, const Value& left, const Value& right);  // Python's `is`
bool less(Heap& heap, const Value& left, const Value& right);
bool contains(Heap& heap, const Value& container, const Value& item);

// The value of `key`, or null. An error for a key that Python cannot hash.
const Value* find_key(Heap& heap, const Dict& dict, const Value& key);

// Adds an entry, or gives an existing key the new value; errors as find_key.
void put_entry(Heap& heap, std::vector<DictEntry>* entries, Value key, Value value);

}  // namespace atom::jinja
