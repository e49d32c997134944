// Filters over lists, dicts and other things that can be iterated. Those that are generators in
// Jinja give a generator here too: without length and index, and empty when read a second time.
#include <algorithm>
#include <optional>

#include "tokenizer/chat_template/access.h"
#include "tokenizer/chat_template/filters.h"
#include "tokenizer/chat_template/operators.h"
#include "tokenizer/chat_template/predicates.h"
#include "tokenizer/chat_template/template_error.h"
#include "tokenizer/chat_template/unicode.h"

namespace atom::jinja {
namespace {

// The arguments of map, select and their like behind the first `count`, which name a filter or
// test.
Arguments without_first(const Arguments& arguments, size_t count) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<ptrdiff_t>(count),
                         arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

Value length(Context& context, const Value& self, const Arguments& arguments) {
  BoundArguments("length", arguments, {});
  return Value::integer(static_cast<int64_t>(length_of(context.heap, self)));
}

Value to_list(Context& context, const Value& self, const Arguments& arguments) {
  BoundArguments("list", arguments, {});
  return context.heap.list(copy_items(context.heap, iterate(context.heap, self)));
}

Value items(Context& context, const Value& self, const Arguments& arguments) {
  BoundArguments("items", arguments, {});
  if (self.is_undefined()) return context.heap.generator({});
  if (!self.is_dict()) fail("items needs a dict, not {}", type_name(self));
  ValueList pairs;
  for (const DictEntry& entry : self.dict().entries) {
    pairs.push_back(context.heap.tuple({entry.key, entry.value}));
  }
  return context.heap.generator(std::move(pairs));
}

Value first(Context& context, const Value& self, const Arguments& arguments) {
  BoundArguments("first", arguments, {});
  if (self.is_sequence() && self.sequence().kind == SequenceKind::kGenerator) {
    const Sequence& generator = self.sequence();
    if (generator.num_consumed < generator.items.size()) {
      return generator.items[generator.num_consumed++];
    }
    return Value::undefined("first of an empty sequence");
  }
  const auto sequence = iterate(context.heap, self);
  return sequence.empty() ? Value::undefined("first of an empty sequence") : sequence[0];
}

Value last(Context& context, const Value& self, const Arguments& arguments) {
  BoundArguments("last", arguments, {});
  if (self.is_sequence() && self.sequence().kind == SequenceKind::kGenerator) {
    fail("last needs a list, not a generator (add '|list')");
  }
  const auto sequence = iterate(context.heap, self);
  return sequence.empty() ? Value::undefined("last of an empty sequence")
                          : sequence[sequence.size() - 1];
}

Value reverse(Context& context, const Value& self, const Arguments& arguments) {
  BoundArguments("reverse", arguments, {});
  if (self.is_string()) return get_slice(context.heap, self, {{}, {}, -1});
  ValueList reversed = copy_items(context.heap, iterate(context.heap, self));
  std::reverse(reversed.begin(), reversed.end());
  return context.heap.generator(std::move(reversed));
}

// What sort, unique, min and max compare: the item or its attribute, without case unless asked.
class SortKey {
 public:
  SortKey(Context& context, const Value* attribute, bool case_sensitive)
      : context_(context), case_sensitive_(case_sensitive) {
    if (attribute == nullptr || attribute->is_none()) return;
    if (!attribute->is_string()) {
      paths_.push_back(*attribute);
      return;
    }
    std::string_view rest = attribute->text();
    while (true) {
      const size_t comma = rest.find(',');
      paths_.push_back(context.heap.string(rest.substr(0, comma)));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  }

  Value of(const Value& item) const {
    if (paths_.empty()) return fold(item);
    if (paths_.size() == 1) return fold(get_path(context_.heap, item, paths_[0]));
    ValueList keys;
    for (const Value& path : paths_) keys.push_back(fold(get_path(context_.heap, item, path)));
    return context_.heap.list(std::move(keys));
  }

 private:
  Value fold(Value value) const {
    if (case_sensitive_ || !value.is_string()) return value;
    context_.heap.step_characters(2 * value.text().size());
    return context_.heap.string(to_lower(value.text()));
  }

  Context& context_;
  bool case_sensitive_;
  ValueList paths_;
};

ValueList sorted_by(Context& context, const ValueList& values, const SortKey& key, bool reverse) {
  context.heap.require(values.size() * sizeof(DictEntry));
  std::vector<DictEntry> entries;
  for (const Value& value : values) entries.push_back({key.of(value), value});
  // Python's reverse keeps the order of equal items, as a stable sort by "greater" does.
  std::stable_sort(
      entries.begin(), entries.end(), [&](const DictEntry& left, const DictEntry& right) {
        return reverse ? less(context.heap, right.key, left.key)
                       : less(context.heap, left.key, right.key);
      });
  ValueList sorted;
  for (DictEntry& entry : entries) sorted.push_back(std::move(entry.value));
  return sorted;
}

Value sort(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const SortKey key(context, bound.get(2), bound.flag(1, false));
  return context.heap.list(
      sorted_by(context, iterate(context.heap, self).list(), key, bound.flag(0, false)));
}

Value dictsort(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (!self.is_dict()) fail("dictsort needs a dict, not {}", type_name(self));
  const std::string* by = bound.text(1);
  if (by != nullptr && *by != "key" && *by != "value") {
    fail("dictsort(): 'by' must be 'key' or 'value', not '{}'", *by);
  }
  const Value position = Value::integer(by != nullptr && *by == "value" ? 1 : 0);
  const SortKey key(context, &position, bound.flag(0, false));
  ValueList pairs;
  for (const DictEntry& entry : self.dict().entries) {
    pairs.push_back(context.heap.tuple({entry.key, entry.value}));
  }
  return context.heap.list(sorted_by(context, pairs, key, bound.flag(2, false)));
}

Value unique(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("unique", arguments, {"case_sensitive", "attribute"});
  const SortKey key(context, bound.get(1), bound.flag(0, false));
  ValueList seen;
  ValueList kept;
  for (const Value& item : iterate(context.heap, self)) {
    const Value item_key = key.of(item);
    const bool is_known = std::any_of(seen.begin(), seen.end(), [&](const Value& other) {
      return equal(context.heap, other, item_key);
    });
    if (is_known) continue;
    seen.push_back(item_key);
    kept.push_back(item);
  }
  return context.heap.generator(std::move(kept));
}

template <bool want_greatest>
Value extreme(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("min and max", arguments, {"case_sensitive", "attribute"});
  const SortKey key(context, bound.get(1), bound.flag(0, false));
  const auto sequence = iterate(context.heap, self);
  if (sequence.empty()) return Value::undefined("min or max of an empty sequence");
  const Value* best = &sequence[0];
  Value best_key = key.of(*best);
  for (const Value& item : sequence) {
    const Value item_key = key.of(item);
    const bool is_better = want_greatest ? less(context.heap, best_key, item_key)
                                         : less(context.heap, item_key, best_key);
    if (!is_better) continue;
    best = &item;
    best_key = item_key;
  }
  return *best;
}

Value sum(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("sum", arguments, {"attribute", "start"});
  const bool has_attribute = bound.get(0) != nullptr && !bound.get(0)->is_none();
  Value total = bound.get_or(1, Value::integer(0));
  for (const Value& item : iterate(context.heap, self)) {
    const Value term = has_attribute ? get_path(context.heap, item, *bound.get(0)) : item;
    total = apply(context.heap, BinaryOperator::kAdd, total, term);
  }
  return total;
}

Value batch(Context& context, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t size = bound.integer(0, 1);
  if (size < 1) fail("batch(): 'linecount' must be at least 1, not {}", size);
  ValueList batches;
  ValueList current;
  for (const Value& item : iterate(context.heap, self)) {
    if (static_cast<int64_t>(current.size()) == size) {
      batches.push_back(context.heap.list(std::exchange(current, {})));
    }
    current.push_back(item);
  }
  if (!current.empty()) {
    const Value* fill = bound.get(1);
    const size_t missing = static_cast<size_t>(size) - current.size();
    if (fill != nullptr && !fill->is_none()) {
      context.heap.require(std::min<size_t>(missing, size_t{1} << 40) * sizeof(Value));
      context.heap.step(missing);
      current.insert(current.end(), missing, *fill);
    }
    batches.push_back(context.heap.list(std::move(current)));
  }
  return context.heap.generator(std::move(batches));
}

Value map(Context& context, const Value& self, const Arguments& arguments) {
  const Value* attribute = arguments.find_named("attribute");
  const Value* fallback = arguments.find_named("default");
  ValueList mapped;
  if (arguments.positional.empty() && attribute != nullptr) {
    BoundArguments("map", arguments, {"attribute", "default"});
    for (const Value& item : iterate(context.heap, self)) {
      Value value = get_path(context.heap, item, *attribute);
      if (value.is_undefined() && fallback != nullptr) value = *fallback;
      mapped.push_back(std::move(value));
    }
    return context.heap.generator(std::move(mapped));
  }
  if (arguments.positional.empty() || !arguments.positional[0].is_string()) {
    fail("map needs attribute='name' or the name of a filter");
  }
  const std::string& name = arguments.positional[0].text();
  const NativeFunction filter = find_filter(name);
  if (filter == nullptr) fail("there is no filter '{}'", name);
  const Arguments rest = without_first(arguments, 1);
  for (const Value& item : iterate(context.heap, self)) {
    context.heap.step();
    mapped.push_back(filter(context, item, rest));
  }
  return context.heap.generator(std::move(mapped));
}

// select, reject (of_attribute false) and selectattr, rejectattr.
template <bool of_attribute, bool keep>
Value choose(Context& context, const Value& self, const Arguments& arguments) {
  const size_t num_leading = of_attribute ? 1 : 0;
  if (arguments.positional.size() < num_leading) {
    fail("selectattr and rejectattr need the name of an attribute");
  }
  Predicate predicate = nullptr;
  Arguments rest;
  if (arguments.positional.size() > num_leading) {
    const Value& name = arguments.positional[num_leading];
    if (name.is_string()) predicate = find_predicate(name.text());
    if (predicate == nullptr) {
      fail("there is no test '{}'", name.is_string() ? name.text() : type_name(name));
    }
    rest = without_first(arguments, num_leading + 1);
  }
  ValueList chosen;
  for (const Value& item : iterate(context.heap, self)) {
    context.heap.step();
    const Value subject =
        of_attribute ? get_path(context.heap, item, arguments.positional[0]) : item;
    const bool passes = predicate ? predicate(context, subject, rest) : subject.truthy();
    if (passes == keep) chosen.push_back(item);
  }
  return context.heap.generator(std::move(chosen));
}

constexpr FilterEntry kFilters[] = {
    {"length", length},
    {"count", length},
    {"list", to_list},
    {"items", items},
    {"first", first},
    {"last", last},
    {"reverse", reverse},
    {"sort", sort},
    {"dictsort", dictsort},
    {"unique", unique},
    {"min", extreme<false>},
    {"max", extreme<true>},
    {"sum", sum},
    {"batch", batch},
    {"map", map},
    {"select", choose<false, true>},
    {"reject", choose<false, false>},
    {"selectattr", choose<true, true>},
    {"rejectattr", choose<true, false>},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() {
  return kFilters;
}

}  // namespace atom::jinja
