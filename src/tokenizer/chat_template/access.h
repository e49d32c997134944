// Reading parts of a value: attributes, items, slices, iteration. As Jinja's sandbox: what does not
// exist is undefined, and methods that would change a list or dict cannot be had.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "tokenizer/chat_template/heap.h"
#include "tokenizer/chat_template/value.h"

namespace atom::jinja {

Value get_attribute(Heap& heap, const Value& object, std::string_view name);  // object.name
Value get_item(Heap& heap, const Value& object, const Value& key);            // object[key]

struct Slice {
  std::optional<int64_t> start, stop, step;
};
Value get_slice(Heap& heap, const Value& object, const Slice& slice);

// The items a `for` visits: of a str its characters, of a dict its keys, of undefined none. Empties
// a generator. An error for a value that cannot be iterated.
Items iterate(Heap& heap, const Value& value);

// A copy of the items to change.
ValueList copy_items(Heap& heap, const Items& items);

// len(); an error for a value without one.
size_t length_of(Heap& heap, const Value& value);

// "a.b.0": the attribute path that filters such as map take. An integer key indexes.
Value get_path(Heap& heap, const Value& object, const Value& path);

}  // namespace atom::jinja
