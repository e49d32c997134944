#include "tokenizer/chat_template/methods.h"

#include "tokenizer/chat_template/access.h"
#include "tokenizer/chat_template/arguments.h"
#include "tokenizer/chat_template/operators.h"
#include "tokenizer/chat_template/template_error.h"

namespace atom::jinja {
namespace {

Value dict_items(Context& context, const Value& self, const Arguments& arguments) {
  BoundArguments("items", arguments, {});
  ValueList items;
  for (const DictEntry& entry : self.dict().entries) {
    items.push_back(context.heap.tuple({entry.key, entry.value}));
  }
  return context.heap.sequence(SequenceKind::kDictItems, std::move(items));
}

Value dict_keys(Context& context, const Value& self, const Arguments& arguments) {
  BoundArguments("keys", arguments, {});
  context.heap.step(1 + self.dict().entries.size() / 8);
  ValueList items;
  for (const DictEntry& entry : self.dict().entries) items.push_back(entry.key);
  return context.heap.sequence(SequenceKind::kDictKeys, std::move(items));
}

Value dict_values(Context& context, const Value& self, const Arguments& arguments) {
  BoundArguments("values", arguments, {});
  context.heap.step(1 + self.dict().entries.size() / 8);
  ValueList items;
  for (const DictEntry& entry : self.dict().entries) items.push_back(entry.value);
  return context.heap.sequence(SequenceKind::kDictValues, std::move(items));
}

Value dict_get(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("get", arguments, {"key", "default"}, 1);
  const Value* value = find_key(context.heap, self.dict(), *bound.get(0));
  return value ? *value : bound.get_or(1, Value::none());
}

Value copy_of(Context&, const Value& self, const Arguments& arguments) {
  BoundArguments("copy", arguments, {});
  return self;  // values never change: the original is as good as a copy
}

Value sequence_index(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("index", arguments, {"value"}, 1);
  const ValueList& items = self.sequence().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (equal(context.heap, items[i], *bound.get(0))) {
      return Value::integer(static_cast<int64_t>(i));
    }
  }
  fail("index(): the value is not in the {}", type_name(self));
}

Value sequence_count(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("count", arguments, {"value"}, 1);
  int64_t count = 0;
  for (const Value& item : self.sequence().items) {
    if (equal(context.heap, item, *bound.get(0))) ++count;
  }
  return Value::integer(count);
}

Value loop_cycle(Context&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) {
    fail("loop.cycle() needs one or more values, without names");
  }
  return arguments.positional[self.loop().index % arguments.positional.size()];
}

Value loop_changed(Context& context, const Value& self, const Arguments& arguments) {
  Loop& loop = self.loop();
  const Value now = context.heap.list(arguments.positional);
  const Value last = context.heap.list(loop.last_changed);
  if (loop.has_changed && equal(context.heap, now, last)) return Value::boolean(false);
  for (const Value& value : arguments.positional) {
    if (value.depth() > 0) fail("loop.changed() compares texts and numbers only");
  }
  loop.has_changed = true;
  loop.last_changed = arguments.positional;
  return Value::boolean(true);
}

constexpr MethodEntry kDictMethods[] = {
    {"items", dict_items},
    {"keys", dict_keys},
    {"values", dict_values},
    {"get", dict_get},
    {"copy", copy_of},
};

constexpr MethodEntry kSequenceMethods[] = {
    {"index", sequence_index},
    {"count", sequence_count},
};

constexpr std::string_view kMutatingListMethods[] = {
    "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
constexpr std::string_view kMutatingDictMethods[] = {
    "clear", "pop", "popitem", "setdefault", "update"};

template <size_t size>
NativeFunction find_in(const MethodEntry (&table)[size], std::string_view name) {
  for (const MethodEntry& entry : table) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

template <size_t size>
bool is_in(const std::string_view (&names)[size], std::string_view name) {
  for (const std::string_view candidate : names) {
    if (candidate == name) return true;
  }
  return false;
}

bool is_list(const Value& value) {
  return value.is_sequence() && value.sequence().kind == SequenceKind::kList;
}

}  // namespace

NativeFunction find_method(const Value& object, std::string_view name) {
  if (object.is_string()) return find_string_method(name);
  if (object.is_dict()) return find_in(kDictMethods, name);
  if (is_list(object) && name == "copy") return copy_of;
  if (object.is_sequence() && (is_list(object) || object.sequence().kind == SequenceKind::kTuple ||
                               object.sequence().kind == SequenceKind::kRange)) {
    return find_in(kSequenceMethods, name);
  }
  return nullptr;
}

bool is_mutating_method(const Value& object, std::string_view name) {
  return (is_list(object) && is_in(kMutatingListMethods, name)) ||
         (object.is_dict() && is_in(kMutatingDictMethods, name));
}

std::optional<Value> loop_attribute(Heap& heap, const Value& self, std::string_view name) {
  const Loop& loop = self.loop();
  const ValueList& items = loop.items.list();
  const int64_t index = static_cast<int64_t>(loop.index);
  const int64_t size = static_cast<int64_t>(items.size());
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index == size - 1);
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "length") return Value::integer(size);
  if (name == "revindex") return Value::integer(size - index);
  if (name == "revindex0") return Value::integer(size - index - 1);
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "previtem") {
    return index > 0 ? items[loop.index - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < size ? items[loop.index + 1] : Value::undefined("there is no next item");
  }
  if (name == "cycle") return heap.method("cycle", loop_cycle, self);
  if (name == "changed") return heap.method("changed", loop_changed, self);
  return std::nullopt;
}

}  // namespace atom::jinja
