// The variables of one block of a template that is running, and those around it. One thread.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/chat_template/value.h"

namespace atom::jinja {

struct Scope {
  explicit Scope(std::shared_ptr<Scope> outer) : parent(std::move(outer)) {}

  // This scope's own variable, or null.
  Value* find(std::string_view name) {
    for (auto& [key, value] : variables) {
      if (key == name) return &value;
    }
    return nullptr;
  }

  void set(std::string_view name, Value value) {
    if (Value* existing = find(name)) {
      *existing = std::move(value);
    } else {
      variables.emplace_back(name, std::move(value));
    }
  }

  std::shared_ptr<Scope> parent;
  // Names point into the syntax tree or the input, which outlive the rendering.
  std::vector<std::pair<std::string_view, Value>> variables;
};

}  // namespace atom::jinja
