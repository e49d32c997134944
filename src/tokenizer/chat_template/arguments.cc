#include "tokenizer/chat_template/arguments.h"

#include <algorithm>

#include "tokenizer/chat_template/template_error.h"

namespace atom::jinja {

const Value* Arguments::find_named(std::string_view name) const {
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

BoundArguments::BoundArguments(std::string_view function,
                               const Arguments& arguments,
                               std::initializer_list<std::string_view> parameters,
                               size_t num_required)
    : function_(function), names_(parameters), values_(parameters.size(), nullptr) {
  if (arguments.positional.size() > names_.size()) {
    fail("{}() takes at most {} arguments, not {}",
         function,
         names_.size(),
         arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [key, value] : arguments.named) {
    const auto found = std::find(names_.begin(), names_.end(), key);
    if (found == names_.end()) fail("{}() takes no argument '{}'", function, key);
    const size_t index = static_cast<size_t>(found - names_.begin());
    if (values_[index] != nullptr) fail("{}() got two values for '{}'", function, key);
    values_[index] = &value;
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (values_[i] == nullptr) fail("{}() needs the argument '{}'", function, names_[i]);
  }
}

bool BoundArguments::flag(size_t parameter, bool fallback) const {
  return values_[parameter] ? values_[parameter]->truthy() : fallback;
}

const std::string* BoundArguments::text(size_t parameter) const {
  const Value* value = values_[parameter];
  if (value == nullptr || value->is_none()) return nullptr;
  if (!value->is_string()) {
    fail("{}(): '{}' must be a str, not {}", function_, names_[parameter], type_name(*value));
  }
  return &value->text();
}

int64_t BoundArguments::integer(size_t parameter, int64_t fallback) const {
  const Value* value = values_[parameter];
  if (value == nullptr || value->is_none()) return fallback;
  if (!value->is_integral()) {
    fail("{}(): '{}' must be an int, not {}", function_, names_[parameter], type_name(*value));
  }
  return value->integral();
}

}  // namespace atom::jinja
