// What the values of the template language (value_handle.h) hold: strings, lists, dicts and the few
// objects Jinja adds. None of it ever changes, except a Namespace, a Loop and the read position of
// a generator, which belong to one rendering.
//
// Lists and dicts know how deep they are nested and are refused beyond kMaxValueDepth, so that
// printing, comparing and destroying a value cannot exhaust the stack.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/chat_template/value_handle.h"

namespace atom::jinja {

struct Arguments;
struct Context;
struct MacroStatement;
struct Scope;

using ValueList = std::vector<Value>;

struct String {
  Charge charge;
  std::string text;  // UTF-8
};

enum class SequenceKind { kList, kTuple, kRange, kDictKeys, kDictValues, kDictItems, kGenerator };

struct Sequence {
  Charge charge;
  SequenceKind kind = SequenceKind::kList;
  ValueList items;
  int depth = 1;
  mutable size_t num_consumed = 0;  // of a generator, which gives each item once
};

// A handle on the items of a sequence that is itself a range: `for (item : iterate(...))` keeps
// them alive, which a loop over a member of a temporary would not.
class Items {
 public:
  explicit Items(std::shared_ptr<const Sequence> sequence) : sequence_(std::move(sequence)) {}

  ValueList::const_iterator begin() const { return list().begin(); }
  ValueList::const_iterator end() const { return list().end(); }
  size_t size() const { return list().size(); }
  bool empty() const { return list().empty(); }
  const Value& operator[](size_t index) const { return list()[index]; }
  const ValueList& list() const { return sequence_->items; }
  int depth() const { return sequence_->depth; }

 private:
  std::shared_ptr<const Sequence> sequence_;
};

struct DictEntry {
  Value key;
  Value value;
};

struct Dict {
  Charge charge;
  std::vector<DictEntry> entries;  // insertion order, keys distinct
  int depth = 1;
};

struct Namespace {
  Charge charge;
  std::vector<std::pair<std::string, Value>> attributes;
};

// Called with the object it was read from (undefined for a global).
using NativeFunction = Value (*)(Context& context, const Value& self, const Arguments& arguments);

struct Function {
  Charge charge;
  std::string name;
  NativeFunction native = nullptr;  // else a macro
  Value self;
  const MacroStatement* macro = nullptr;
  std::shared_ptr<Scope> closure;  // where the macro was defined
};

struct Loop {
  explicit Loop(Items loop_items) : items(std::move(loop_items)) {}

  Charge charge;
  Items items;
  size_t index = 0;
  int depth = 1;
  ValueList last_changed;  // arguments of the last loop.changed(...)
  bool has_changed = false;
};

// "str", "list", "NoneType": the names Python's messages use.
std::string_view type_name(const Value& value);

}  // namespace atom::jinja
