// JSON in and out of the template language.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/json.h"
#include "tokenizer/chat_template/heap.h"
#include "tokenizer/chat_template/value.h"

namespace atom::jinja {

// Counts as what a template makes: a value takes several times the memory of its JSON. Throws
// TemplateError for text that is not UTF-8, integers beyond 64 signed bits and nesting beyond
// kMaxValueDepth.
Value value_from_json(Heap& heap, const OrderedJson& json);

struct JsonDumpOptions {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool is_indented = false;
  std::string indent;  // of one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// As Python's json.dumps: values that JSON cannot say are a TypeError there and an error here.
std::string dump_json(Heap& heap, const Value& value, const JsonDumpOptions& options);

}  // namespace atom::jinja
