#include "ops/variant.h"

#include "base/check.h"
#include "base/env.h"

namespace atom::ops {

namespace {

constexpr char kPrefers = '+';

// Calls visit(op, variant) for each entry of ATOM_OP_VARIANT, until one returns true.
template <typename Visit>
bool any_entry(Visit&& visit) {
  std::string_view rest = env().op_variant;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view entry = rest.substr(0, comma);
    const size_t equals = entry.find('=');
    if (equals != std::string_view::npos &&
        visit(entry.substr(0, equals), entry.substr(equals + 1))) {
      return true;
    }
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return false;
}

std::string_view without_mark(std::string_view variant) {
  return variant.starts_with(kPrefers) ? variant.substr(1) : variant;
}

}  // namespace

std::string_view forced_variant(std::string_view op) {
  std::string_view forced;
  any_entry([&](std::string_view of, std::string_view variant) {
    if (of != op || variant.starts_with(kPrefers)) return false;
    forced = variant;
    return true;
  });
  return forced;
}

bool has_preferred_variant(std::string_view op) {
  return any_entry([op](std::string_view of, std::string_view variant) {
    return of == op && variant.starts_with(kPrefers);
  });
}

bool is_preferred_variant(std::string_view op, std::string_view name) {
  return any_entry([op, name](std::string_view of, std::string_view variant) {
    return of == op && variant.starts_with(kPrefers) && variant.substr(1) == name;
  });
}

std::vector<std::string> named_variants() {
  std::vector<std::string> names;
  any_entry([&](std::string_view, std::string_view variant) {
    names.emplace_back(without_mark(variant));
    return false;
  });
  return names;
}

bool is_named_variant(std::string_view name) {
  return any_entry(
      [name](std::string_view, std::string_view variant) { return without_mark(variant) == name; });
}

void no_such_variant(std::string_view op, std::string_view wanted) {
  check_failed("a variant of the operator runs this call",
               fmt::format("[{}] ATOM_OP_VARIANT wants '{}', which does not exist or cannot run "
                           "here on {}",
                           op,
                           wanted,
                           cpu_isa_name(cpu_isa())),
               __FILE__,
               __LINE__);
}

}  // namespace atom::ops
