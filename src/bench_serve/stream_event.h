// What one event of a completion stream says, found without parsing its JSON: a walk over its
// strings, at most one visit for each byte.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace atom::bench_serve {

struct StreamEvent {
  bool is_object = false;      // looks like a whole JSON object
  bool carries_token = false;  // text, reasoning, a tool call or an empty text that ends nothing
  bool is_final = false;       // has a finish_reason
  bool may_be_error = false;   // has a key "error" with an object or a string
  std::optional<int64_t> prompt_tokens;  // of its usage
  std::optional<int64_t> completion_tokens;
};

StreamEvent scan_event(std::string_view json);

}  // namespace atom::bench_serve
