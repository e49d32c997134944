#include "ops/variant.h"

#include "base/check.h"
#include "base/env.h"

namespace atom::ops {

std::string_view forced_variant(std::string_view op) {
  std::string_view rest = env().op_variant;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view entry = rest.substr(0, comma);
    const size_t equals = entry.find('=');
    if (equals != std::string_view::npos && entry.substr(0, equals) == op) {
      return entry.substr(equals + 1);
    }
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return {};
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
