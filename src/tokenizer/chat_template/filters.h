// What stands behind `|`: Jinja's filters, with the tojson of transformers (json.dumps).
#pragma once

#include <span>
#include <string_view>

#include "tokenizer/chat_template/arguments.h"

namespace atom::jinja {

struct FilterEntry {
  std::string_view name;
  NativeFunction function;  // `self` is the filtered value
};

NativeFunction find_filter(std::string_view name);  // null: no such filter

std::span<const FilterEntry> text_filters();      // text_filters.cc
std::span<const FilterEntry> sequence_filters();  // sequence_filters.cc

}  // namespace atom::jinja
