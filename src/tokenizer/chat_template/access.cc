#include "tokenizer/chat_template/access.h"

#include <algorithm>
#include <charconv>

#include "tokenizer/chat_template/methods.h"
#include "tokenizer/chat_template/operators.h"
#include "tokenizer/chat_template/template_error.h"
#include "tokenizer/chat_template/to_text.h"
#include "tokenizer/chat_template/unicode.h"

namespace atom::jinja {
namespace {

// What of a name that the template makes up goes into a message.
std::string_view shortened(std::string_view name) {
  return name.substr(0, 200);
}

Value missing_attribute(const Value& object, std::string_view name) {
  return Value::undefined(
      fmt::format("'{} object' has no attribute '{}'", type_name(object), shortened(name)));
}

void require_defined(const Value& object) {
  if (object.is_undefined()) fail("{}", object.undefined_reason());
}

// The index of item `index` (negative: from the end), or nothing when it is out of range.
std::optional<size_t> resolve_index(int64_t index, size_t size) {
  const int64_t signed_size = static_cast<int64_t>(size);
  if (index < 0) index += signed_size;
  if (index < 0 || index >= signed_size) return std::nullopt;
  return static_cast<size_t>(index);
}

bool can_index(const Sequence& sequence) {
  return sequence.kind == SequenceKind::kList || sequence.kind == SequenceKind::kTuple ||
         sequence.kind == SequenceKind::kRange;
}

// The item without the fallback to attributes; null when there is none.
std::optional<Value> find_item(Heap& heap, const Value& object, const Value& key) {
  if (object.is_dict()) {
    if (key.is_undefined()) return std::nullopt;
    const Value* value = find_key(heap, object.dict(), key);
    return value ? std::optional<Value>(*value) : std::nullopt;
  }
  if (!key.is_integral()) return std::nullopt;
  if (object.is_string()) {
    const std::string& text = object.text();
    heap.step_characters(2 * text.size());
    const auto index = resolve_index(key.integral(), count_code_points(text));
    if (!index) return std::nullopt;
    const size_t begin = byte_position(text, *index);
    size_t end = begin;
    next_code_point(text, &end);
    return heap.string(std::string_view(text).substr(begin, end - begin));
  }
  if (object.is_sequence() && can_index(object.sequence())) {
    const ValueList& items = object.sequence().items;
    const auto index = resolve_index(key.integral(), items.size());
    return index ? std::optional<Value>(items[*index]) : std::nullopt;
  }
  return std::nullopt;
}

// The attributes Python objects have here: methods, namespace variables, loop state.
std::optional<Value> find_attribute(Heap& heap, const Value& object, std::string_view name) {
  if (object.is_namespace()) {
    heap.step(object.name_space().attributes.size() / 16);
    for (const auto& [key, value] : object.name_space().attributes) {
      if (same_text(heap, key, name)) return value;
    }
    return std::nullopt;
  }
  if (object.is_loop()) return loop_attribute(heap, object, name);
  if (is_mutating_method(object, name) || name.substr(0, 2) == "__") {
    if (object.is_dict() && name.substr(0, 2) == "__") return std::nullopt;
    return Value::undefined(fmt::format(
        "'{}' of a {} cannot be used in a template, which may not change its input (build a new "
        "value, or use a namespace)",
        shortened(name),
        type_name(object)));
  }
  if (const NativeFunction method = find_method(object, name)) {
    return heap.method(name, method, object);
  }
  return std::nullopt;
}

struct SliceRange {
  int64_t start, stop, step;
};

SliceRange resolve_slice(const Slice& slice, int64_t size) {
  const int64_t step = slice.step.value_or(1);
  if (step == 0) fail("the step of a slice cannot be 0");
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? size : size - 1;
  const auto clamp = [&](std::optional<int64_t> position, int64_t missing) {
    if (!position) return missing;
    const int64_t from_start = *position < 0 ? std::max(*position, -size - 1) + size : *position;
    return std::clamp(from_start, low, std::max(low, high));
  };
  return {
      clamp(slice.start, step > 0 ? 0 : size - 1), clamp(slice.stop, step > 0 ? size : -1), step};
}

// Calls visit(index) for each index of the range.
template <typename Visit>
void visit_slice(const SliceRange& range, Visit visit) {
  for (int64_t i = range.start; range.step > 0 ? i < range.stop : i > range.stop;) {
    visit(static_cast<size_t>(i));
    if (__builtin_add_overflow(i, range.step, &i)) break;
  }
}

Value slice_text(Heap& heap, const std::string& text, const Slice& slice) {
  heap.step_characters(2 * text.size());
  const SliceRange range = resolve_slice(slice, static_cast<int64_t>(count_code_points(text)));
  if (range.step == 1) {
    if (range.start >= range.stop) return heap.string(std::string());
    const size_t begin = byte_position(text, static_cast<size_t>(range.start));
    const std::string_view rest = std::string_view(text).substr(begin);
    const size_t size = byte_position(rest, static_cast<size_t>(range.stop - range.start));
    return heap.string(rest.substr(0, size));
  }
  std::vector<std::string_view> characters;
  heap.require(text.size() * sizeof(std::string_view));
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    next_code_point(text, &position);
    characters.push_back(std::string_view(text).substr(begin, position - begin));
  }
  heap.step(characters.size() / 16);
  std::string out;
  visit_slice(range, [&](size_t i) { out += characters[i]; });
  return heap.string(std::move(out));
}

Items characters_of(Heap& heap, const std::string& text) {
  heap.require(text.size() * sizeof(Value));
  ValueList items;
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    next_code_point(text, &position);
    items.push_back(heap.string(std::string_view(text).substr(begin, position - begin)));
  }
  return Items(heap.list(std::move(items)).sequence_pointer());
}

}  // namespace

Value get_attribute(Heap& heap, const Value& object, std::string_view name) {
  heap.step();
  require_defined(object);
  if (auto value = find_attribute(heap, object, name)) return *std::move(value);
  if (object.is_dict()) {
    heap.step(object.dict().entries.size() / 16);
    for (const DictEntry& entry : object.dict().entries) {
      if (entry.key.is_string() && same_text(heap, entry.key.text(), name)) return entry.value;
    }
  }
  return missing_attribute(object, name);
}

Value get_item(Heap& heap, const Value& object, const Value& key) {
  heap.step();
  require_defined(object);
  const bool is_unhashable =
      key.is_dict() || (key.is_sequence() && key.sequence().kind == SequenceKind::kList);
  if (!is_unhashable) {
    if (auto value = find_item(heap, object, key)) return *std::move(value);
  }
  if (key.is_string()) {
    if (auto value = find_attribute(heap, object, key.text())) return *std::move(value);
    return missing_attribute(object, key.text());
  }
  return Value::undefined(
      fmt::format("{} object has no element {}", type_name(object), shortened(to_repr(heap, key))));
}

Value get_slice(Heap& heap, const Value& object, const Slice& slice) {
  heap.step();
  require_defined(object);
  if (object.is_string()) return slice_text(heap, object.text(), slice);
  if (!object.is_sequence() || !can_index(object.sequence())) {
    return Value::undefined(fmt::format("a {} cannot be sliced", type_name(object)));
  }
  const ValueList& items = object.sequence().items;
  const SliceRange range = resolve_slice(slice, static_cast<int64_t>(items.size()));
  heap.require(items.size() * sizeof(Value));
  heap.step(1 + items.size() / 8);
  ValueList chosen;
  visit_slice(range, [&](size_t i) { chosen.push_back(items[i]); });
  return heap.sequence(object.sequence().kind, std::move(chosen));
}

Items iterate(Heap& heap, const Value& value) {
  heap.step();
  if (value.is_undefined()) return Items(heap.list({}).sequence_pointer());
  if (value.is_string()) return characters_of(heap, value.text());
  if (value.is_dict()) {
    heap.step(1 + value.dict().entries.size() / 8);
    ValueList keys;
    keys.reserve(value.dict().entries.size());
    for (const DictEntry& entry : value.dict().entries) keys.push_back(entry.key);
    return Items(heap.list(std::move(keys)).sequence_pointer());
  }
  if (!value.is_sequence()) fail("'{}' object is not iterable", type_name(value));
  const Sequence& sequence = value.sequence();
  if (sequence.kind != SequenceKind::kGenerator) return Items(value.sequence_pointer());
  heap.step(1 + sequence.items.size() / 8);
  ValueList rest(sequence.items.begin() + static_cast<ptrdiff_t>(sequence.num_consumed),
                 sequence.items.end());
  sequence.num_consumed = sequence.items.size();
  return Items(heap.list(std::move(rest)).sequence_pointer());
}

ValueList copy_items(Heap& heap, const Items& items) {
  heap.require(items.size() * sizeof(Value));
  heap.step(1 + items.size() / 8);
  return items.list();
}

size_t length_of(Heap& heap, const Value& value) {
  heap.step();
  if (value.is_undefined()) return 0;
  if (value.is_string()) {
    heap.step_characters(value.text().size());
    return count_code_points(value.text());
  }
  if (value.is_dict()) return value.dict().entries.size();
  if (value.is_loop()) return value.loop().items.size();
  if (!value.is_sequence() || value.sequence().kind == SequenceKind::kGenerator) {
    fail("a value of type {} has no length", type_name(value));
  }
  return value.sequence().items.size();
}

Value get_path(Heap& heap, const Value& object, const Value& path) {
  if (!path.is_string()) return get_item(heap, object, path);
  Value current = object;
  std::string_view rest = path.text();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    int64_t index = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = !part.empty() && part[0] != '-' && parsed.ec == std::errc() &&
                          parsed.ptr == part.data() + part.size();
    current = get_item(heap, current, is_index ? Value::integer(index) : heap.string(part));
    if (dot == std::string_view::npos) return current;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace atom::jinja
