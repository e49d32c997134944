// The arguments of a call, and what a native function needs besides them.
#pragma once

#include <ctime>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/chat_template/heap.h"
#include "tokenizer/chat_template/value.h"

namespace atom::jinja {

struct Context {
  Heap& heap;
  std::tm now;  // local time, for strftime_now
};

struct Arguments {
  ValueList positional;
  std::vector<std::pair<std::string, Value>> named;

  const Value* find_named(std::string_view name) const;
};

// Pairs arguments with parameter names as Python does; errors name the function.
class BoundArguments {
 public:
  // The first `num_required` parameters must be given.
  BoundArguments(std::string_view function,
                 const Arguments& arguments,
                 std::initializer_list<std::string_view> parameters,
                 size_t num_required = 0);

  const Value* get(size_t parameter) const { return values_[parameter]; }  // null: not given
  Value get_or(size_t parameter, Value fallback) const {
    return values_[parameter] ? *values_[parameter] : fallback;
  }
  bool flag(size_t parameter, bool fallback) const;
  // None counts as not given. Anything of another type is an error.
  const std::string* text(size_t parameter) const;
  int64_t integer(size_t parameter, int64_t fallback) const;

 private:
  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

}  // namespace atom::jinja
